// SPDX-License-Identifier: Apache-2.0
//
// render [OPTIONS] OUT WIDTH HEIGHT SAMPLES: pictures with real noise, from a small path tracer.
//     --scene N      which scene: 0 (default) is the box of `make demo`, others are random
//     --pass N       other random numbers for the same picture (default 0)
//     --threads N    default: as many as there are processors
//     --only-colour  no features
// OUT.png is the picture, encoded as sRGB. OUT.npy or OUT.pfm is linear colour, and beside it are
// written OUT.albedo.*, OUT.normal.* and OUT.depth.* of the same type (trace.h says what they are).
// How far it is is said on a terminal, elsewhere a line every five seconds.
// Each pixel has random numbers of its own, so the pictures do not depend on the number of threads.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../srgb.h"
#include "quern.h"
#include "trace.h"

enum { COLOUR, ALBEDO, NORMAL, DEPTH, N_PLANES, MAX_THREADS = 64, MAX_SIZE = 1 << 15 };

static const struct {
    const char *suffix;
    int channels;
} planes[N_PLANES] = {{"", 3}, {".albedo", 3}, {".normal", 3}, {".depth", 1}};

struct progress {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a thread has ended */
    int rows, running;      /* rows that are done, threads */
};

struct picture {
    struct scene scene;
    struct progress progress;
    uint64_t number, pass;
    int w, h, samples, threads;
    bool only_colour, encoded;
    const char *out;
    quern_tensor *tensor[N_PLANES]; /* (1, channels, h, w) */
};
struct job {
    struct picture *p;
    int first;
};

static void put(struct picture *p, int plane, int64_t at, const float *v)
{
    int64_t size = (int64_t)p->w * p->h;
    float *data = p->tensor[plane] ? quern_tensor_data(p->tensor[plane]) : NULL;
    for (int k = 0; data && k < planes[plane].channels; k++) data[k * size + at] = v[k];
}

static void render_pixel(struct picture *p, int x, int y)
{
    uint64_t stream = p->number << 42 ^ p->pass << 34;
    struct rng g = seed((stream ^ stream >> 31) + (uint64_t)y * 100003u + (uint64_t)x + 1);
    struct sample sum = {0};
    for (int s = 0; s < p->samples; s++) {
        float u = ((float)x + next(&g) - (float)p->w / 2) / (float)p->h,
              v = ((float)p->h / 2 - (float)y - next(&g)) / (float)p->h;
        struct sample one = trace(&p->scene, camera_ray(&p->scene.camera, u, v, &g), &g);
        sum.colour = add(sum.colour, one.colour), sum.albedo = add(sum.albedo, one.albedo);
        sum.normal = add(sum.normal, one.normal), sum.depth += one.depth;
    }
    float part = 1 / (float)p->samples, depth = sum.depth * part;
    vec c = scale(sum.colour, part), a = scale(sum.albedo, part), n = scale(sum.normal, part);
    if (p->encoded) c = (vec){srgb_encode(c.x), srgb_encode(c.y), srgb_encode(c.z)};
    int64_t at = (int64_t)y * p->w + x;
    put(p, COLOUR, at, (float[]){c.x, c.y, c.z}), put(p, ALBEDO, at, (float[]){a.x, a.y, a.z});
    put(p, NORMAL, at, (float[]){n.x, n.y, n.z}), put(p, DEPTH, at, &depth);
}

static void *render_rows(void *user)
{
    const struct job *j = user;
    struct progress *g = &j->p->progress;
    for (int y = j->first; y < j->p->h; y += j->p->threads) {
        for (int x = 0; x < j->p->w; x++) render_pixel(j->p, x, y);
        pthread_mutex_lock(&g->lock);
        g->rows++;
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_lock(&g->lock);
    g->running--;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static double seconds_of(struct timespec t) { return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }

/* Until the threads have ended; nothing is said of what is done at once. */
static void show_progress(struct picture *p)
{
    struct progress *g = &p->progress;
    struct timespec t;
    bool is_live = isatty(STDERR_FILENO), has_line = false;
    clock_gettime(CLOCK_REALTIME, &t);
    double start = seconds_of(t), last = is_live ? start + 0.8 : start;
    pthread_mutex_lock(&g->lock);
    while (g->running) {
        t.tv_nsec += 200000000;
        t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&g->changed, &g->lock, &t);
        clock_gettime(CLOCK_REALTIME, &t);
        double now = seconds_of(t), done = (double)g->rows / p->h;
        if (!g->running || done == 0 || now - last < (is_live ? 0.2 : 5)) continue;
        last = now;
        fprintf(stderr, "%srendering: %3.0f %%, %.0f s left%s", is_live ? "\r" : "", 100 * done,
                (now - start) * (1 - done) / done, is_live ? "\033[K" : "\n");
        has_line = is_live;
    }
    pthread_mutex_unlock(&g->lock);
    if (has_line) fprintf(stderr, "\r\033[K");
}

static bool render(struct picture *p)
{
    pthread_t thread[MAX_THREADS];
    struct job job[MAX_THREADS];
    struct progress *g = &p->progress;
    int started = 0;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->running = p->threads;
    for (; started < p->threads; started++) {
        job[started] = (struct job){p, started};
        if (pthread_create(&thread[started], NULL, render_rows, &job[started])) break;
    }
    pthread_mutex_lock(&g->lock);
    g->running -= p->threads - started;
    pthread_mutex_unlock(&g->lock);
    show_progress(p);
    for (int k = 0; k < started; k++) pthread_join(thread[k], NULL);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    return started == p->threads;
}

/* arguments */

static bool parse_number(const char *text, uint64_t max, uint64_t *out)
{
    char *end = NULL;
    *out = text ? strtoull(text, &end, 10) : 0;
    return text && *text >= '0' && *text <= '9' && !*end && *out <= max;
}

static bool parse_count(const char *text, uint64_t max, int *out)
{
    uint64_t n;
    bool ok = parse_number(text, max, &n) && n > 0;
    *out = (int)n;
    return ok;
}

static bool parse_option(struct picture *p, char **argv, int *k)
{
    const char *name = argv[*k];
    if (!strcmp(name, "--only-colour")) return p->only_colour = true;
    const char *value = argv[++*k];
    if (!value) return false;
    if (!strcmp(name, "--scene")) return parse_number(value, UINT32_MAX, &p->number);
    if (!strcmp(name, "--pass")) return parse_number(value, 255, &p->pass);
    return !strcmp(name, "--threads") && parse_count(value, MAX_THREADS, &p->threads);
}

static bool parse(struct picture *p, int argc, char **argv)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    p->threads = cpus < 1 ? 1 : cpus > MAX_THREADS ? MAX_THREADS : (int)cpus;
    int k = 1;
    for (; k < argc && !strncmp(argv[k], "--", 2); k++)
        if (!parse_option(p, argv, &k)) return false;
    if (argc - k != 4) return false;
    p->out = argv[k];
    const char *suffix = strrchr(p->out, '.');
    p->encoded = suffix && !strcmp(suffix, ".png");
    p->only_colour |= p->encoded;
    return suffix && parse_count(argv[k + 1], MAX_SIZE, &p->w) &&
           parse_count(argv[k + 2], MAX_SIZE, &p->h) &&
           parse_count(argv[k + 3], 1 << 24, &p->samples);
}

/* files */

static bool new_tensors(struct picture *p, quern *q)
{
    for (int k = 0; k < (p->only_colour ? 1 : N_PLANES); k++) {
        const int64_t dim[] = {1, planes[k].channels, p->h, p->w};
        if (quern_tensor_new(q, QUERN_F32, 4, dim, NULL, &p->tensor[k])) return false;
    }
    return true;
}

static bool write_tensors(const struct picture *p, quern *q)
{
    const char *suffix = strrchr(p->out, '.');
    for (int k = 0; k < N_PLANES && p->tensor[k]; k++) {
        char path[4096];
        int n = snprintf(path, sizeof path, "%.*s%s%s", (int)(suffix - p->out), p->out,
                         planes[k].suffix, suffix);
        if (n < 0 || n >= (int)sizeof path)
            return fprintf(stderr, "render: name too long\n"), false;
        if (quern_tensor_write(q, path, p->tensor[k])) return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct picture p = {0};
    if (!parse(&p, argc, argv)) {
        fprintf(stderr, "usage: render [--scene N] [--pass N] [--threads N] [--only-colour] "
                        "OUT.png|OUT.npy|OUT.pfm WIDTH HEIGHT SAMPLES\n");
        return 2;
    }
    quern *q = quern_open(NULL);
    if (!scene_init(&p.scene, p.number)) return fprintf(stderr, "render: out of memory\n"), 1;
    bool ok = new_tensors(&p, q) && render(&p) && write_tensors(&p, q);
    if (!ok) fprintf(stderr, "render: %s\n", quern_error(q));
    for (int k = 0; k < N_PLANES; k++) quern_tensor_free(p.tensor[k]);
    scene_release(&p.scene);
    quern_close(q);
    return !ok;
}
