// SPDX-License-Identifier: Apache-2.0
//
// What the database knows of a task in one environment: its best verified candidate.
#include "tune/tune.h"

bool tune_best(struct db *d, i64 env, const struct task *t, const i64 *var, struct task_known *k, struct err *e)
{
    struct arena tmp = {0};
    struct trial_row *rows = NULL;
    u32 n = 0;
    *k = (struct task_known){0};
    i64 id = db_task(d, t, e);
    bool ok = id != 0 && db_trials(d, env, id, sizes_text(&tmp, t->g.sym, var, t), &tmp, &rows, &n, e);
    for (u32 i = 0; i < n && ok; i++) {
        k->n_trials += rows[i].n > 0;
        if (rows[i].status != TRIAL_OK || rows[i].n == 0 || (k->measured && rows[i].median >= k->seconds)) continue;
        k->measured = true;
        k->best = rows[i].cand;
        k->seconds = rows[i].median;
    }
    arena_release(&tmp);
    return ok;
}
