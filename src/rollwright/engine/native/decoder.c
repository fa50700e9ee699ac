// The forward pass of a decoder over paged keys and values, one call a step; see engine/native/__init__.py.
#include "attend.h"
#include "gemm.h"
#include "pool.h"
#include "sample.h"
#include "vec.h"

typedef struct {
    const float *input_norm, *post_norm, *q_norm, *k_norm;  // the last two NULL without qk_norm
    Matrix qkv, o, gate_up, down;
} Layer;

typedef struct {
    int num_layers, hidden, intermediate, num_heads, num_kv_heads, head_dim;
    float rms_eps, scale;
    const float *embed;  // [V, hidden]
    long embed_stride;
    const float *final_norm, *rope;  // rope: [positions, head_dim] of (cos, sin) pairs
    Matrix head;
    const Layer *layers;
} Model;

typedef struct {
    int num_rows, num_out;             // tokens fed; how many give logits
    const int32_t *tokens, *positions; // [num_rows]
    const int32_t *slots;              // [num_rows] line of table and counts
    const int32_t *pages, *offsets;    // [num_rows] where the new key goes
    const int32_t *table, *counts;     // [slots, width]: pages, and how many places of each belong to the sequence
    long width;
    const int32_t *out_rows;           // [num_out] rows whose logits are wanted, ascending
    Keys kv;
    float *x, *h, *qkv, *attended, *act;  // scratch, [num_rows, ld_*]
    long ld_x, ld_qkv, ld_act;
    float *scores;                     // [threads, heads of a key head, ld_scores]
    long ld_scores;
    float *out_h;                      // [num_out, ld_x]
    Draw draw;                         // rows are those of out_rows; logits receive the result
    int samples;                       // 0: logits only
    double *seconds;                   // [3]: layers, head, sampling, added up by the first thread; NULL for none
} Batch;

typedef struct {
    const Model *model;
    const Batch *batch;
    _Atomic int *next;  // one counter a phase
} Job;

static size_t phases_of(const Model *m) { return 8 * (size_t)m->num_layers + 4; }

#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// h = x / √(mean(x²) + eps) · weight; what lies past `num` up to a whole vector is zero in x.
static void norm(const float *x, const float *weight, int num, float eps, float *h) {
    vf s = {0};
    for (int i = 0; i < num; i += VW) s = fma_(load(x + i), load(x + i), s);
    const vf by = all(1.0f / sqrtf(sum_lanes(s) / (float)num + eps));
    for (int i = 0; i < num; i += VW) store(h + i, load(x + i) * by * load(weight + i));
}

static void turn(float *x, const float *rope, int dim) {
    for (int i = 0; i < dim; i += 2) {
        const float a = x[i], b = x[i + 1], c = rope[i], s = rope[i + 1];
        x[i] = a * c - b * s;
        x[i + 1] = a * s + b * c;
    }
}

// Norm and turn the queries and keys of one row, and put its keys and values into their place.
static void place(const Model *m, const Layer *layer, const Batch *b, int number, int row) {
    const int dim = m->head_dim;
    float *q = b->qkv + row * b->ld_qkv, *k = q + m->num_heads * dim, *v = k + m->num_kv_heads * dim;
    const float *rope = m->rope + (long)b->positions[row] * dim;
    for (int i = 0; i < m->num_kv_heads; i++) {  // the keys' places lie on a line each
        const float *to = keys_of(&b->kv, b->pages[row], number, i) + b->offsets[row];
        for (int d = 0; d < dim; d++) __builtin_prefetch(to + d * PAGE, 1);
    }
    for (int i = 0; i < m->num_heads; i++) {
        if (layer->q_norm) norm(q + i * dim, layer->q_norm, dim, m->rms_eps, q + i * dim);
        turn(q + i * dim, rope, dim);
    }
    for (int i = 0; i < m->num_kv_heads; i++) {
        if (layer->k_norm) norm(k + i * dim, layer->k_norm, dim, m->rms_eps, k + i * dim);
        turn(k + i * dim, rope, dim);
        float *to = (float *)keys_of(&b->kv, b->pages[row], number, i) + b->offsets[row];
        for (int d = 0; d < dim; d++) to[d * PAGE] = k[i * dim + d];
        memcpy((float *)keys_of(&b->kv, b->pages[row], number, i) + b->kv.layer_stride / 2 + b->offsets[row] * dim,
               v + i * dim, 4 * dim);
    }
}

#define EACH(i, num, grain) \
    for (int begin_, end_; (begin_ = atomic_fetch_add_explicit(next, grain, memory_order_relaxed)) < (num);) \
        for (int i = begin_, stop_ = (end_ = begin_ + (grain), end_ < (num) ? end_ : (num)); i < stop_; i++)
// One thread's share of a layer's attention: (row, key head) items, some at a time.
static void attention(const Model *m, const Batch *b, _Atomic int *next, int layer, int num, int grain, float *scores) {
    const int heads = m->num_kv_heads, group = m->num_heads / heads, dim = m->head_dim;
    EACH(i, num, grain) {
        const int row = i / heads, head = i % heads, after = i + 1 < stop_ ? i + 1 : i;
        const long slot = b->slots[row], slot_after = b->slots[after / heads];
        Walk walk = {&b->kv, b->table + slot * b->width, b->counts + slot * b->width, b->positions[row] + 1, 0,
                     layer, head, b->table + slot_after * b->width, after % heads,
                     b->width < AHEAD ? (int)b->width : AHEAD};
        for (int seen = 0; seen < walk.num; walk.num_pages++) seen += walk.counts[walk.num_pages];
        const long at = row * b->ld_qkv + head * group * dim;
        attend(&walk, group, b->qkv + at, dim, m->scale, scores, b->ld_scores, b->attended + at);
    }
}

#define NEXT_PHASE (meet(pool), next++)

static void forward(void *arg, Pool *pool, int id) {
    const Job *job = arg;
    const Model *m = job->model;
    const Batch *b = job->batch;
    _Atomic int *next = job->next;
    const int num = b->num_rows, threads = pool->num, group = m->num_heads / m->num_kv_heads;
    const int grain = num < 4 * threads ? 1 : num / (4 * threads) > 16 ? 16 : num / (4 * threads);
    const int items = num * m->num_kv_heads < 16 * threads ? 1 : 8;
    float *scores = b->scores + (long)id * group * b->ld_scores;
    double *seconds = id == 0 ? b->seconds : NULL;
    const double began = seconds ? now() : 0;
    const Layer *layer = m->layers;
    EACH(i, num, grain) {
        float *x = b->x + i * b->ld_x;
        memcpy(x, m->embed + b->tokens[i] * m->embed_stride, 4 * (size_t)m->hidden);
        memset(x + m->hidden, 0, 4 * (size_t)(b->ld_x - m->hidden));
        norm(x, layer->input_norm, m->hidden, m->rms_eps, b->h + i * b->ld_x);
    }
    for (int number = 0; number < m->num_layers; number++, layer++) {
        NEXT_PHASE;
        product(next, threads, num, b->h, b->ld_x, &layer->qkv, b->qkv, b->ld_qkv, STORE);
        NEXT_PHASE;
        EACH(i, num, grain) place(m, layer, b, number, i);
        NEXT_PHASE;
        attention(m, b, next, number, num * m->num_kv_heads, items, scores);
        NEXT_PHASE;
        product(next, threads, num, b->attended, b->ld_qkv, &layer->o, b->x, b->ld_x, ADD);
        NEXT_PHASE;
        EACH(i, num, grain) norm(b->x + i * b->ld_x, layer->post_norm, m->hidden, m->rms_eps, b->h + i * b->ld_x);
        NEXT_PHASE;
        product(next, threads, num, b->h, b->ld_x, &layer->gate_up, b->act, b->ld_act, SILU_MUL);
        NEXT_PHASE;
        product(next, threads, num, b->act, b->ld_act, &layer->down, b->x, b->ld_x, ADD);
        NEXT_PHASE;
        if (number + 1 < m->num_layers)
            EACH(i, num, grain)
                norm(b->x + i * b->ld_x, (layer + 1)->input_norm, m->hidden, m->rms_eps, b->h + i * b->ld_x);
    }
    EACH(i, b->num_out, 1)
        norm(b->x + b->out_rows[i] * b->ld_x, m->final_norm, m->hidden, m->rms_eps, b->out_h + i * b->ld_x);
    NEXT_PHASE;
    const double layers_done = seconds ? now() : 0;
    product(next, threads, b->num_out, b->out_h, b->ld_x, &m->head, b->draw.logits, b->draw.ld, STORE);
    NEXT_PHASE;
    const double head_done = seconds ? now() : 0;
    if (b->samples)
        EACH(i, b->num_out, 1)
            if (!b->draw.skip[i]) draw_row(&b->draw, i);
    if (b->samples) meet(pool);
    if (seconds) {
        seconds[0] += layers_done - began;
        seconds[1] += head_done - layers_done;
        seconds[2] += now() - head_done;
    }
}

static void pass(const Model *model, const Batch *batch, Pool *pool, _Atomic int *next) {
    memset((void *)next, 0, phases_of(model) * sizeof *next);
    Job job = {model, batch, next};
    run(pool, forward, &job);
}

int rw_forward(const Model *model, const Batch *batch, Pool *pool) {
    _Atomic int *next = malloc(phases_of(model) * sizeof *next);
    if (!next) return -1;
    pass(model, batch, pool, next);
    free((void *)next);
    return 0;
}

// Several steps in which every row decodes. Rows are slots 0..B-1 of the batch, whose arrays are written here.
typedef struct {
    int num_steps;
    int64_t *num_keys, *room;       // [B]: keys before each row's next token; places left in its last page
    int32_t *num_pages;             // [B]; a row without room goes on in the page that follows in its table
    int32_t *counts;                // [B, width] of the batch, to be moved on
    const uint8_t *is_end;          // [V] tokens that end any row
    const int64_t *stop_ids;        // [B, num_stop_ids]
    long num_stop_ids;
    const uint8_t *may_stop;        // [sets, V]: tokens that may complete a stop string of the set
    const int64_t *stop_set;        // [B], or -1
    const uint32_t *words;          // [num_steps, 2, B]
    int64_t *tokens;                // [num_steps, B]
    float *logps, *entropies;       // [num_steps, B]
} Burst;

static int ends(const Burst *u, const Batch *b, int row, int64_t token, float logp) {
    if (u->is_end[token] || !isfinite(logp)) return 1;
    for (long i = 0; i < u->num_stop_ids; i++)
        if (u->stop_ids[row * u->num_stop_ids + i] == token) return 1;
    return u->stop_set[row] >= 0 && u->may_stop[u->stop_set[row] * (long)b->draw.vocab + token];
}

// Return how many steps were done: all, or up to the first in which a row may have ended; -1 without memory.
int rw_burst(const Model *model, Batch *b, Burst *u, Pool *pool) {
    _Atomic int *next = malloc(phases_of(model) * sizeof *next);
    if (!next) return -1;
    const int num = b->num_rows;
    int32_t *tokens = (int32_t *)b->tokens, *positions = (int32_t *)b->positions;
    int32_t *pages = (int32_t *)b->pages, *offsets = (int32_t *)b->offsets;
    int step = 0, is_over = 0;
    while (step < u->num_steps && !is_over) {
        for (int i = 0; i < num; i++) {
            if (!u->room[i]) u->num_pages[i]++, u->room[i] = PAGE;
            const long last = i * b->width + u->num_pages[i] - 1;
            positions[i] = (int32_t)u->num_keys[i] + step;
            pages[i] = b->table[last];
            offsets[i] = u->counts[last]++;
            u->room[i]--;
        }
        b->draw.words = u->words + (long)step * 2 * num;
        b->draw.tokens = u->tokens + (long)step * num;
        b->draw.logps = u->logps + (long)step * num;
        b->draw.entropies = u->entropies + (long)step * num;
        pass(model, b, pool, next);
        for (int i = 0; i < num; i++) {
            tokens[i] = (int32_t)b->draw.tokens[i];
            is_over |= ends(u, b, i, tokens[i], b->draw.logps[i]);
        }
        step++;
    }
    free((void *)next);
    return step;
}

// What the Python side must agree with.
int rw_vector_width(void) { return VW; }
int rw_page(void) { return PAGE; }
int rw_sizeof_model(void) { return sizeof(Model); }
int rw_sizeof_batch(void) { return sizeof(Batch); }
int rw_sizeof_layer(void) { return sizeof(Layer); }
int rw_sizeof_burst(void) { return sizeof(Burst); }
