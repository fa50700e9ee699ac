// A few threads that run one function together and meet at barriers. They spin for a moment, then sleep.
#pragma once
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_THREADS = 64, SPINS_IN_STEP = 20000, SPINS_IDLE = 20000 };

typedef struct Pool {
    int num;                       // threads, the caller among them
    pid_t pid;                     // the process that made them: a forked child has none
    pthread_t threads[MAX_THREADS];
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    _Atomic long generation;       // of the work at hand
    _Atomic int num_done, num_waiting;
    _Atomic long barrier;          // generation of the barrier
    void (*work)(void *, struct Pool *, int);
    void *arg;
    int is_closing;
} Pool;

typedef struct { Pool *pool; int id; } Start;

static inline void pause_(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// All threads of a run meet here.
static inline void meet(Pool *pool) {
    if (pool->num == 1) return;
    const long now = atomic_load_explicit(&pool->barrier, memory_order_acquire);
    if (atomic_fetch_add_explicit(&pool->num_waiting, 1, memory_order_acq_rel) == pool->num - 1) {
        atomic_store_explicit(&pool->num_waiting, 0, memory_order_relaxed);
        atomic_store_explicit(&pool->barrier, now + 1, memory_order_release);
        return;
    }
    for (int i = 0; atomic_load_explicit(&pool->barrier, memory_order_acquire) == now; i++) {
        if (i < SPINS_IN_STEP) pause_();
        else sched_yield();
    }
}

static void *serve(void *arg) {
    Start start = *(Start *)arg;
    free(arg);
    Pool *pool = start.pool;
    long seen = 0;
    for (;;) {
        for (int i = 0; i < SPINS_IDLE && atomic_load_explicit(&pool->generation, memory_order_acquire) == seen; i++)
            pause_();
        if (atomic_load_explicit(&pool->generation, memory_order_acquire) == seen) {
            pthread_mutex_lock(&pool->mutex);
            while (atomic_load(&pool->generation) == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
            pthread_mutex_unlock(&pool->mutex);
        }
        seen = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (pool->is_closing) return NULL;
        pool->work(pool->arg, pool, start.id);
        atomic_fetch_add_explicit(&pool->num_done, 1, memory_order_acq_rel);
    }
}

static int start_threads(Pool *pool) {
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    atomic_store(&pool->generation, 0);
    atomic_store(&pool->num_waiting, 0);
    pool->pid = getpid();
    for (int id = 1; id < pool->num; id++) {
        Start *start = malloc(sizeof *start);
        *start = (Start){pool, id};
        if (pthread_create(&pool->threads[id], NULL, serve, start)) {
            free(start);
            pool->num = id;  // fewer threads do the same work
            return -1;
        }
    }
    return 0;
}

// Run work(arg, pool, id) on every thread and return when all are through.
static void run(Pool *pool, void (*work)(void *, Pool *, int), void *arg) {
    if (pool->num > 1 && pool->pid != getpid()) start_threads(pool);
    if (pool->num == 1) { work(arg, pool, 0); return; }
    pool->work = work;
    pool->arg = arg;
    atomic_store(&pool->num_done, 0);
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_acq_rel);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    work(arg, pool, 0);
    for (int i = 0; atomic_load_explicit(&pool->num_done, memory_order_acquire) != pool->num - 1; i++) {
        if (i < SPINS_IN_STEP) pause_();
        else sched_yield();
    }
}

Pool *rw_pool_new(int num) {
    Pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->num = num < 1 ? 1 : num > MAX_THREADS ? MAX_THREADS : num;
    start_threads(pool);
    return pool;
}

int rw_pool_size(const Pool *pool) { return pool->num; }

void rw_pool_free(Pool *pool) {
    if (pool->num > 1 && pool->pid == getpid()) {
        pthread_mutex_lock(&pool->mutex);
        pool->is_closing = 1;
        atomic_fetch_add(&pool->generation, 1);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
        for (int id = 1; id < pool->num; id++) pthread_join(pool->threads[id], NULL);
    }
    free(pool);
}
