// SPDX-License-Identifier: Apache-2.0
//
// Two kernels of one task timed alternately in one child process, so that disturbances affect both. Warm-up rounds are ordinary rounds that
// are not counted. Medians have intervals by order statistics (tune/stats.c), also of the ratio, which is taken round by round.
#include "lab/conv.h"

#include <math.h>
#include <string.h>

static const double least_timeout = 60, slow_flops = 1e9; /* per second */

double conv_timeout(const struct task *t, const i64 *var) { return least_timeout + task_flops(t, var) / slow_flops; }

struct keeper {
    struct conv_times *t;
    u32 warm_up, total;
};

/* n restarts at 1 with the trial. */
static bool on_sample(void *user, const struct sample *s, u32 n)
{
    struct keeper *k = user;
    if (n <= k->warm_up) {
        k->t->n = 0;
        return true;
    }
    k->t->n = n - k->warm_up;
    k->t->seconds[k->t->n - 1] = s->seconds;
    k->t->base[k->t->n - 1] = s->base;
    return k->t->n < k->total;
}

static struct stats median_of(const double *v, u32 n, struct arena *a)
{
    double *copy = arena_array(a, double, n + 1);
    memcpy(copy, v, n * sizeof *v);
    return stats_of(copy, n);
}

static void sum_up(struct conv_times *t, bool has_base, struct arena *a)
{
    double *q = arena_array(a, double, t->n + 1);
    t->of = median_of(t->seconds, t->n, a);
    if (!has_base) return;
    for (u32 i = 0; i < t->n; i++) q[i] = t->base[i] / t->seconds[i];
    t->of_base = median_of(t->base, t->n, a);
    t->ratio = stats_of(q, t->n);
}

bool conv_profile(struct conv_times *t, const struct conv_place *p, const struct task *task, const struct conv_pair *k, struct arena *a,
                  struct err *e)
{
    struct check c;
    struct buf why = {0};
    u32 total = k->total ? k->total : CONV_ROUNDS;
    *t = (struct conv_times){.seconds = arena_array(a, double, total), .base = arena_array(a, double, total)};
    struct keeper keep = {t, k->warm_up, total};
    i64 *none = arena_array(a, i64, 1);
    const struct trial_opts o = {.driver = p->driver, .dev = p->dev, .timeout = conv_timeout(task, none),
                                 .max_samples = k->warm_up + total, .base = k->base, .same_constants = true, .stop = p->stop};
    if (!check_init(&c, task, none, k->seed, false, e)) return false;
    enum trial_status st = trial_run(k->subject, NULL, 0, &c, &o, on_sample, &keep, &why);
    bool ok = st == TRIAL_OK || err_set(e, ERR_FAILED, "not timed: %s: %.*s", trial_status_name(st), STR_ARG(buf_view(&why)));
    if (ok) sum_up(t, k->base != NULL, a);
    check_release(&c);
    buf_release(&why);
    return ok;
}
