// Tokens from logits: temperature, the exponential race of rollwright.rng, logprob and entropy, in two passes a row.
#pragma once
#include "vec.h"

typedef struct {
    float *logits;                  // [rows, ld]
    long ld;
    int vocab;
    const int32_t *skip;            // rows that are sampled elsewhere are 1
    const uint32_t *words;          // [2, rows]: the noise's seeds
    const float *temperature;       // 0 is greedy
    const int64_t *forced;          // a token or -1
    int64_t *tokens;
    float *logps, *entropies;
    int num_rows;
} Draw;

// -log1p(-u) of random words, as rollwright.rng.exponential.
INLINE vf exponential(vu bits) {
    const vf u = (__builtin_convertvector(bits, vf) + all(0.5f)) * all(0x1p-32f * (1 - 0x1p-24f));
    const vf w = all(1.0f) - u, d = all(1.0f) - w;  // log1p(-u) = log(w)·u/(1 - w), exact where 1 - u rounds
    const vi is_tiny = d == all(0);
    const vf exact = where(is_tiny, u, -vlog(w) * (u / where(is_tiny, all(1.0f), d)));
    return exact;
}

INLINE vu noise(vu index, uint32_t a, uint32_t b) {
    vu x = index * 0x9E3779B9u + a;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= b;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    x ^= x >> 16;
    return x;
}

static void draw_row(const Draw *d, int row) {
    float *logits = d->logits + row * d->ld;
    const int vocab = d->vocab, padded = (vocab + VW - 1) / VW * VW;
    for (int i = vocab; i < padded; i++) logits[i] = -INFINITY;
    const float temperature = d->temperature[row];
    const int is_greedy = temperature == 0;
    const vf heat = all(is_greedy ? 1.0f : temperature);
    vf top = all(-INFINITY);
    vi index, at = {0};
    for (int i = 0; i < VW; i++) index[i] = i;
    const vi first = index;
    for (int i = 0; i < padded; i += VW, index += VW) {
        const vf z = load(logits + i) / heat;
        const vi more = z > top;
        top = where(more, z, top);
        at = (more & index) | (~more & at);
    }
    const float most = max_lanes(top);
    int32_t best = INT32_MAX;
    for (int i = 0; i < VW; i++)
        if (top[i] == most && at[i] < best) best = at[i];
    const uint32_t a = d->words[row], b = d->words[d->num_rows + row];
    double sum = 0, moment = 0;
    vf fastest = all(INFINITY);
    vi winner = {0};
    index = first;
    for (int begin = 0; begin < padded; begin += 512) {
        const int end = begin + 512 < padded ? begin + 512 : padded;
        vf s = {0}, m = {0};
        for (int i = begin; i < end; i += VW, index += VW) {
            const vf z = load(logits + i) / heat - all(most), p = vexp(z);
            s += p;
            m += where(p > all(0), p * z, all(0));
            const vf time = exponential(noise((vu)index, a, b)) / p;
            const vi faster = time < fastest;
            fastest = where(faster, time, fastest);
            winner = (faster & index) | (~faster & winner);
        }
        for (int i = 0; i < VW; i++) sum += s[i], moment += m[i];
    }
    if (!is_greedy) {
        float least = INFINITY;
        best = INT32_MAX;
        for (int i = 0; i < VW; i++)
            if (fastest[i] < least || (fastest[i] == least && winner[i] < best)) least = fastest[i], best = winner[i];
    }
    if (d->forced[row] >= 0) best = (int32_t)d->forced[row];
    if (best < 0 || best >= vocab) best = 0;  // no number won: the logprob below says so
    const double log_sum = log(sum);
    d->tokens[row] = best;
    d->logps[row] = (float)((double)(logits[best] / heat[0] - most) - log_sum);
    d->entropies[row] = (float)(log_sum - moment / sum);
}
