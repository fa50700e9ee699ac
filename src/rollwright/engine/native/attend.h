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

// One query's walk over memory: its pages of keys, its pages of values, then the keys of the query that comes next.
typedef struct {
    const Keys *kv;
    const int32_t *table, *counts;  // of the sequence
    int num, num_pages, layer, head; // keys that the query sees, and the pages that hold them
    const int32_t *next_table;
    int next_head, num_next;        // at most so many of its pages are in its table
} Walk;

enum { AHEAD = 4 };  // pages between what is read and what is fetched

INLINE const float *page_at(const Walk *w, int i) {
    const long half = w->kv->layer_stride / 2;
    if (i < w->num_pages) return keys_of(w->kv, w->table[i], w->layer, w->head);
    i -= w->num_pages;
    if (i < w->num_pages) return keys_of(w->kv, w->table[i], w->layer, w->head) + half;
    i -= w->num_pages;
    return keys_of(w->kv, w->next_table[i < w->num_next ? i : 0], w->layer, w->next_head);
}

// Scores of `heads` queries against `pages` pages: one chain over d for each.
INLINE void score(int heads, int pages, const float *q, int dim, const float *const *keys, const float *const *soon,
                  float *const *out, long ld) {
    vf s[4][4 * PV];
    for (int g = 0; g < heads; g++)
        for (int j = 0; j < pages * PV; j++) s[g][j] = (vf){0};
    for (int d = 0; d < dim; d++) {
        vf k[4 * PV];
        for (int j = 0; j < pages; j++) __builtin_prefetch(soon[j] + d * PAGE);  // a page has a line for each d
        for (int j = 0; j < pages * PV; j++) k[j] = load(keys[j / PV] + d * PAGE + j % PV * VW);
        for (int g = 0; g < heads; g++) {
            const vf a = all(q[g * dim + d]);
            for (int j = 0; j < pages * PV; j++) s[g][j] = fma_(a, k[j], s[g][j]);
        }
    }
    for (int g = 0; g < heads; g++)
        for (int j = 0; j < pages * PV; j++) store(out[j / PV] + g * ld + j % PV * VW, s[g][j]);
}

#define SCORE(h, p) score(h, p, q + g * dim, dim, keys, soon, to, ld)

static void scores_of(const Walk *w, int heads, const float *q, int dim, float *s, long ld) {
    for (int g = 0; g < heads;) {
        const int left = heads - g, now = left >= 4 ? 4 : left;
        const int most = now == 1 ? 4 : now == 4 ? 1 : now == 2 ? 3 : 2;
        for (int page = 0, base = 0; page < w->num_pages; page += most) {
            const float *keys[4], *soon[4];
            float *to[4];
            for (int i = 0; i < most; i++) {
                soon[i] = page_at(w, page + AHEAD + i);
                const int is_there = page + i < w->num_pages;
                keys[i] = is_there ? page_at(w, page + i) : keys[i - 1];  // the last again: harmless
                to[i] = is_there ? s + g * ld + base : to[i - 1];
                base += is_there ? w->counts[page + i] : 0;
            }
            const int there = w->num_pages - page < most ? w->num_pages - page : most;
            if (now == 1) SCORE(1, 4);
            else if (now == 2 && there == 3) SCORE(2, 3);
            else if (now == 2 && there == 2) SCORE(2, 2);
            else if (now == 2) SCORE(2, 1);
            else if (now == 3 && there == 2) SCORE(3, 2);
            else if (now == 3) SCORE(3, 1);
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
        const vf e = vexp_clamped((load(s + i) - most) * scale);
        store(s + i, e);
        sum += e;
    }
    const vf inverse = all(1.0f / sum_lanes(sum));
    for (int i = 0; i < padded; i += VW) store(s + i, load(s + i) * inverse);
}

// out [heads, wide vectors] = Σ weight · value, over the vectors of the value from `first` on.
INLINE void weigh(const Walk *w, int heads, int wide, const float *p, long ld, int dim, int first, float *out) {
    vf o[4][8];
    for (int g = 0; g < heads; g++)
        for (int j = 0; j < wide; j++) o[g][j] = (vf){0};
    for (int page = 0, base = 0; page < w->num_pages; base += w->counts[page++]) {
        const float *values = page_at(w, w->num_pages + page) + first, *soon = page_at(w, w->num_pages + page + AHEAD);
        const int end = w->num - base < w->counts[page] ? w->num - base : w->counts[page];
        for (int t = 0; t < end; t++) {
            vf v[8];
            for (int j = 0; j < wide; j += 16 / VW) __builtin_prefetch(soon + t * dim + first + j * VW);
            for (int j = 0; j < wide; j++) v[j] = load(values + t * dim + j * VW);
            for (int g = 0; g < heads; g++) {
                const vf a = all(p[g * ld + base + t]);
                for (int j = 0; j < wide; j++) o[g][j] = fma_(a, v[j], o[g][j]);
            }
        }
    }
    for (int g = 0; g < heads; g++)
        for (int j = 0; j < wide; j++) store(out + g * dim + first + j * VW, o[g][j]);
}

#define WEIGH(h, w, first) weigh(walk, h, w, s + g * ld, ld, dim, first, out + g * dim)

// One query of each of a key head's `heads` query heads, [heads, dim], over the walk's keys -> out [heads, dim].
static void attend(const Walk *walk, int heads, const float *q, int dim, float scale, float *s, long ld, float *out) {
    scores_of(walk, heads, q, dim, s, ld);
    for (int g = 0; g < heads; g++) softmax(s + g * ld, walk->num, scale);
    const int wide = dim / VW;
    for (int g = 0; g < heads;) {
        const int left = heads - g;
        if (wide == 2 && left >= 4) { WEIGH(4, 2, 0); g += 4; }
        else if (wide == 2 && left >= 2) { WEIGH(2, 2, 0); g += 2; }
        else if (wide == 4 && left >= 3) { WEIGH(3, 4, 0); g += 3; }
        else if (wide == 4 && left >= 2) { WEIGH(2, 4, 0); g += 2; }
        else {
            for (int j = 0; j < wide;) {  // one head, as many vectors at a time as registers hold
                if (wide - j >= 8) { WEIGH(1, 8, j * VW); j += 8; }
                else if (wide - j >= 4) { WEIGH(1, 4, j * VW); j += 4; }
                else { WEIGH(1, 1, j * VW); j += 1; }
            }
            g += 1;
        }
    }
}
