// Attention of single queries over paged keys and values.
// A page holds PAGE places of one layer and head: keys [head_dim, PAGE], values [PAGE, head_dim]. Scores lie by absolute
// position before they are summed, so the bits do not depend on where pages begin.
#pragma once
#include "vec.h"

enum { PAGE = 16, PV = PAGE / VW };

typedef struct {
    const float *pool;            // [pages, layers, 2, kv_heads, PAGE * head_dim]
    long page_stride, layer_stride, head_stride;  // in floats; values lie half a layer after keys
} Keys;

INLINE const float *keys_of(const Keys *kv, int page, int layer, int head) {
    return kv->pool + page * kv->page_stride + layer * kv->layer_stride + head * kv->head_stride;
}

// Scores of `heads` queries against `pages` pages: one chain over d for each.
INLINE void score(int heads, int pages, const float *q, int dim, const float *const *keys, const float *const *soon,
                  float *const *out, long ld) {
    vf s[4][4 * PV];
    for (int g = 0; g < heads; g++)
        for (int j = 0; j < pages * PV; j++) s[g][j] = (vf){0};
    for (int d = 0; d < dim; d++) {
        vf k[4 * PV];
        for (int j = 0; j < pages; j++) __builtin_prefetch(soon[j] + d * PAGE);  // a page's lines are one each d
        for (int j = 0; j < pages * PV; j++) k[j] = load(keys[j / PV] + d * PAGE + j % PV * VW);
        for (int g = 0; g < heads; g++) {
            const vf a = all(q[g * dim + d]);
            for (int j = 0; j < pages * PV; j++) s[g][j] = fma_(a, k[j], s[g][j]);
        }
    }
    for (int g = 0; g < heads; g++)
        for (int j = 0; j < pages * PV; j++) store(out[j / PV] + g * ld + j % PV * VW, s[g][j]);
}

INLINE void weigh(int heads, int wide, const float *p, long ld, int dim, const int32_t *table, const int32_t *counts, int num,
                  const Keys *kv, int layer, int head, float *out) {
    vf o[4][8];
    for (int g = 0; g < heads; g++)
        for (int j = 0; j < wide; j++) o[g][j] = (vf){0};
    const long half = kv->layer_stride / 2;
    for (int page = 0, base = 0; base < num; base += counts[page++]) {
        const float *values = keys_of(kv, table[page], layer, head) + half;
        const int end = num - base < counts[page] ? num - base : counts[page];
        const int is_last = base + counts[page] >= num;
        const float *soon = is_last ? values : keys_of(kv, table[page + 1], layer, head) + half;
        for (int t = 0; t < end; t++) {
            vf v[8];
            for (int j = 0; j < wide; j += 16 / VW) __builtin_prefetch(soon + t * dim + j * VW);
            for (int j = 0; j < wide; j++) v[j] = load(values + t * dim + j * VW);
            for (int g = 0; g < heads; g++) {
                const vf a = all(p[g * ld + base + t]);
                for (int j = 0; j < wide; j++) o[g][j] = fma_(a, v[j], o[g][j]);
            }
        }
    }
    for (int g = 0; g < heads; g++)
        for (int j = 0; j < wide; j++) store(out + g * dim + j * VW, o[g][j]);
}

#define SCORE(h, p) score(h, p, q + g * dim, dim, ptr, soon, to, ld)

static void scores_of(int heads, const float *q, int dim, const int32_t *table, const int32_t *counts, int num, const Keys *kv,
                      int layer, int head, float *s, long ld) {
    for (int g = 0; g < heads;) {
        const int left = heads - g, now = left >= 4 ? 4 : left;
        const int most = now == 1 ? 4 : now == 4 ? 1 : now == 2 ? 3 : 2;
        for (int page = 0, base = 0; base < num;) {
            const float *ptr[4];
            const float *soon[4];
            float *to[4];
            int n = 0;
            for (; n < most && base < num; n++, page++) {
                ptr[n] = keys_of(kv, table[page], layer, head);
                to[n] = s + g * ld + base;
                base += counts[page];
            }
            for (int i = n; i < most; i++) ptr[i] = ptr[n - 1], to[i] = to[n - 1];  // the same again: harmless
            // What comes next: more keys, or in the end the first values.
            for (int i = 0, at = base, p = page; i < most; i++, p++) {
                const int is_key = at < num;
                soon[i] = keys_of(kv, table[is_key ? p : 0], layer, head) + (is_key ? 0 : kv->layer_stride / 2);
                at += is_key ? counts[p] : 0;
            }
            if (now == 1) SCORE(1, 4);
            else if (now == 2) SCORE(2, 3);
            else if (now == 3) SCORE(3, 2);
            else SCORE(4, 1);
        }
        g += now;
    }
}

// Turn scores [num] into weights, padded with zeros to a whole vector.
static void softmax(float *s, int num, float scale) {
    const int padded = (num + VW - 1) / VW * VW;
    for (int i = num; i < padded; i++) s[i] = -INFINITY;
    vf top = load(s);
    for (int i = VW; i < padded; i += VW) top = vmax(load(s + i), top);
    const vf most = all(max_lanes(top));
    vf sum = {0};
    for (int i = 0; i < padded; i += VW) {
        const vf e = vexp((load(s + i) - most) * scale);
        store(s + i, e);
        sum += e;
    }
    const vf inverse = all(1.0f / sum_lanes(sum));
    for (int i = 0; i < padded; i += VW) store(s + i, load(s + i) * inverse);
}

#define WEIGH(h, w) weigh(h, w, s + g * ld, ld, dim, table, counts, num, kv, layer, head, out + g * dim)

#define WEIGH_PART(w) weigh(1, w, s + g * ld, ld, dim, table, counts, num, &shifted, layer, head, to)

// One query of each of a key head's `heads` query heads, [heads, dim], over the first `num` keys -> out [heads, dim].
static void attend(int heads, const float *q, int dim, const int32_t *table, const int32_t *counts, int num, const Keys *kv,
                   int layer, int head, float scale, float *s, long ld, float *out) {
    scores_of(heads, q, dim, table, counts, num, kv, layer, head, s, ld);
    for (int g = 0; g < heads; g++) softmax(s + g * ld, num, scale);
    const int wide = dim / VW;
    for (int g = 0; g < heads;) {
        const int left = heads - g;
        if (wide == 2 && left >= 4) { WEIGH(4, 2); g += 4; }
        else if (wide == 2 && left >= 2) { WEIGH(2, 2); g += 2; }
        else if (wide == 4 && left >= 3) { WEIGH(3, 4); g += 3; }
        else if (wide == 4 && left >= 2) { WEIGH(2, 4); g += 2; }
        else {
            for (int j = 0; j < wide;) {  // one head, as many vectors at a time as registers hold
                Keys shifted = *kv;
                shifted.pool += j * VW;
                float *to = out + g * dim + j * VW;
                if (wide - j >= 8) { WEIGH_PART(8); j += 8; }
                else if (wide - j >= 4) { WEIGH_PART(4); j += 4; }
                else { WEIGH_PART(1); j += 1; }
            }
            g += 1;
        }
    }
}
