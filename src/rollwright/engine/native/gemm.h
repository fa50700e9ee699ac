// out = x · weightᵀ with packed weights. Each number of the result is one chain of multiply-adds over k in order,
// in a lane of its own, so a row's bits do not depend on how many rows there are, which tile took it, or on threads.
#pragma once
#include "pool.h"
#include "vec.h"

enum { NR = 2 * VW, MR = 6 };
enum { BLOCK_FLOATS = 65536 };  // so much of x stays in the second cache while a block of rows meets every panel
typedef enum { STORE, ADD, SILU_MUL } Epilogue;

typedef struct {
    const float *weight;  // packed: [num_panels, K, NR]
    const float *bias;    // [num_panels * NR] or NULL
    int num_out, num_in;  // N and K
} Matrix;

INLINE int panels_of(int num_out) { return (num_out + NR - 1) / NR; }

// rows x panels of the result; both are constants where it is inlined.
INLINE void tile(int rows, int panels, const float *x, long ldx, const Matrix *m, int panel, float *out, long ldo,
                 Epilogue epilogue) {
    const long K = m->num_in, stride = K * NR;
    const float *w = m->weight + panel * stride;
    vf c[MR][8];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 2 * panels; j++) c[i][j] = (vf){0};
    for (long k = 0; k < K; k++) {
        vf b[8];
        for (int j = 0; j < panels; j++) {
            b[2 * j] = load(w + j * stride + k * NR);
            b[2 * j + 1] = load(w + j * stride + k * NR + VW);
        }
        for (int i = 0; i < rows; i++) {
            const vf a = all(x[i * ldx + k]);
            for (int j = 0; j < 2 * panels; j++) c[i][j] = fma_(a, b[j], c[i][j]);
        }
    }
    for (int j = 0; j < panels; j++) {
        vf bias0 = {0}, bias1 = {0};
        if (m->bias) {
            bias0 = load(m->bias + (panel + j) * NR);
            bias1 = load(m->bias + (panel + j) * NR + VW);
        }
        for (int i = 0; i < rows; i++) {
            const vf c0 = c[i][2 * j] + bias0, c1 = c[i][2 * j + 1] + bias1;
            if (epilogue == SILU_MUL) {  // a panel holds VW gates, then their VW ups
                const vf gate = c0 / (all(1.0f) + vexp_clamped(vmin(all(88.0f), -c0)));
                store(out + i * ldo + (panel + j) * VW, gate * c1);
                continue;
            }
            float *to = out + i * ldo + (panel + j) * NR;
            store(to, epilogue == ADD ? load(to) + c0 : c0);
            store(to + VW, epilogue == ADD ? load(to + VW) + c1 : c1);
        }
    }
}

#define TILE(rows, panels) \
    case rows: tile(rows, panels, x, ldx, m, panel, out, ldo, epilogue); break;

INLINE void tile_wide(int rows, const float *x, long ldx, const Matrix *m, int panel, float *out, long ldo,
                      Epilogue epilogue) {
    switch (rows) { TILE(1, 4) TILE(2, 2) TILE(3, 2) TILE(4, 1) TILE(5, 1) TILE(6, 1) }
}

INLINE void tile_one(int rows, const float *x, long ldx, const Matrix *m, int panel, float *out, long ldo,
                     Epilogue epilogue) {
    switch (rows) { TILE(1, 1) TILE(2, 1) TILE(3, 1) TILE(4, 1) TILE(5, 1) TILE(6, 1) }
}

// The rows of x in as few tiles as they take, all about equally high.
typedef struct { int num_rows, num_tiles, first, end; } Tiles;

// Panels [first, end) for the rows of some tiles.
INLINE void block(Tiles tiles, const float *x, long ldx, const Matrix *m, int first, int end, float *out, long ldo,
                  Epilogue epilogue) {
    const int num = tiles.num_rows;
    for (int panel = first; panel < end;) {
        const int widest = num == 1 ? 4 : num <= 3 ? 2 : 1;
        const int wide = end - panel >= widest ? widest : 1;
        for (int t = tiles.first; t < tiles.end; t++) {
            const long row = (long)num * t / tiles.num_tiles;
            const int rows = (int)((long)num * (t + 1) / tiles.num_tiles - row);
            const float *from = x + row * ldx;
            float *to = out + row * ldo;
            if (wide > 1) tile_wide(rows, from, ldx, m, panel, to, ldo, epilogue);
            else tile_one(rows, from, ldx, m, panel, to, ldo, epilogue);
        }
        panel += wide;
    }
}

#define FOR_EPILOGUE(e) \
    static void block_##e(Tiles t, const float *x, long ldx, const Matrix *m, int a, int b, float *o, long ldo) { \
        block(t, x, ldx, m, a, b, o, ldo, e); }
FOR_EPILOGUE(STORE) FOR_EPILOGUE(ADD) FOR_EPILOGUE(SILU_MUL)

// One thread's share of out (op)= x · weightᵀ: pieces of rows x panels are taken from a counter.
static void product(_Atomic int *next, int num_threads, int num_rows, const float *x, long ldx, const Matrix *m,
                    float *out, long ldo, Epilogue epilogue) {
    const int num_panels = panels_of(m->num_out), num_tiles = (num_rows + MR - 1) / MR;
    const int in_block = BLOCK_FLOATS / (MR * m->num_in) + 1, row_blocks = (num_tiles + in_block - 1) / in_block;
    int chunk = num_panels;
    if (num_threads > 1) {
        chunk = num_panels / (num_threads * 4);
        chunk = chunk < 4 ? 4 : chunk;
        if (chunk * num_threads > num_panels) chunk = (num_panels + num_threads - 1) / num_threads;
    }
    const int chunks = (num_panels + chunk - 1) / chunk, pieces = chunks * row_blocks;
    for (int i; (i = atomic_fetch_add_explicit(next, 1, memory_order_relaxed)) < pieces;) {
        const int rb = i % row_blocks, first = i / row_blocks * chunk;
        const Tiles tiles = {num_rows, num_tiles, num_tiles * rb / row_blocks, num_tiles * (rb + 1) / row_blocks};
        const int end = first + chunk < num_panels ? first + chunk : num_panels;
        if (epilogue == STORE) block_STORE(tiles, x, ldx, m, first, end, out, ldo);
        else if (epilogue == ADD) block_ADD(tiles, x, ldx, m, first, end, out, ldo);
        else block_SILU_MUL(tiles, x, ldx, m, first, end, out, ldo);
    }
}

// Pack weight [num_out, num_in] (row-major) into panels. is_gated: rows are gates, then as many ups, which a panel pairs.
void rw_pack(const float *weight, int num_out, int num_in, int is_gated, float *packed) {
    const int half = num_out / 2;
    const long num = is_gated ? 2 * (((long)half + VW - 1) / VW) * VW : (long)panels_of(num_out) * NR;
    for (long p = 0; p < num / NR; p++)
        for (int j = 0; j < NR; j++) {
            long row = p * NR + j;
            if (is_gated) {
                const long at = p * VW + j % VW;
                row = at >= half ? -1 : j < VW ? at : half + at;
            } else if (row >= num_out) row = -1;
            float *to = packed + p * num_in * NR + j;
            for (int k = 0; k < num_in; k++) to[(long)k * NR] = row < 0 ? 0.0f : weight[row * num_in + k];
        }
}
