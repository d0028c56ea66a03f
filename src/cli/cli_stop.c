// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C and SIGTERM: the first one ends the command gracefully (measurements are kept, a program is written if there is one),
// the second at once. A signal that was ignored when the command started stays ignored (nohup, background jobs of scripts).
#include "cli.h"

#include <signal.h>
#include <string.h>

static const int watched[] = {SIGINT, SIGTERM};
static quern *context;                /* handlers have no argument to pass it in */
static volatile sig_atomic_t arrived; /* number of the signal; 0: none */

static void set_all(void (*to)(int))
{
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
        struct sigaction was, now;
        memset(&now, 0, sizeof now);
        now.sa_handler = to;
        if (sigaction(watched[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN) sigaction(watched[i], &now, NULL);
    }
}

static void on_signal(int number)
{
    arrived = number;
    set_all(SIG_DFL);
    quern_stop(context);
}

void stop_watch(quern *q)
{
    context = q;
    set_all(on_signal);
}

void stop_unwatch(void) { set_all(SIG_DFL); }

int stop_signal(void) { return arrived; }
