# SPDX-License-Identifier: Apache-2.0
#
# Processors of this process's threads. A woken thread may be scheduled on the processor of the
# waking thread and wait there while another is idle: libraries that let their threads sleep lose
# milliseconds. Here busy threads are bound to a processor each. Linux.
import os

TASKS = "/proc/self/task"


def tasks():
    return [int(t) for t in os.listdir(TASKS)]


def used():
    """{thread: nanoseconds of processor time}"""
    found = {}
    for t in tasks():
        try:
            with open("%s/%d/schedstat" % (TASKS, t)) as f:
                found[t] = int(f.read().split()[0])
        except OSError:
            pass  # has ended
    return found


def allow(thread, cpus):
    try:
        os.sched_setaffinity(thread, cpus)
    except OSError:
        pass  # has ended


class Places:
    """The processors that this thread may use."""

    def __init__(self):
        self.cpus = sorted(os.sched_getaffinity(0))

    def anywhere(self):
        """Lets the system place all threads."""
        for t in tasks():
            allow(t, self.cpus)

    def apart(self, work, n):
        """Binds each of the n busiest threads of work() to a processor, as far as there are enough;
        the others are not bound. Returns the bound ones."""
        before = used()
        work()
        took = {t: ns - before.get(t, 0) for t, ns in used().items()}
        busiest = sorted(took, key=lambda t: (-took[t], t))[: min(n, len(self.cpus))]
        for t, cpu in zip(busiest, self.cpus):
            allow(t, {cpu})
        return busiest
