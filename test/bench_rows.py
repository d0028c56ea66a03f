# SPDX-License-Identifier: Apache-2.0
#
# bench_rows.py BUILD: the list of rows and the statistics of bench/compare, where it puts threads;
# networks by BUILD/quern.
import functools
import hashlib
import math
import os
import random
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench"))
sys.dont_write_bytecode = True
import graphs  # noqa: E402
import places  # noqa: E402
import rows  # noqa: E402
import stats  # noqa: E402

rows.QUERN = os.path.join(sys.argv[1], "quern")
rows.group = functools.cache(rows.group)  # some are asked of the command


class Rows(unittest.TestCase):
    def test_names_are_unique_and_work_is_finite(self):
        for g in rows.GROUPS:
            found = rows.group(g)
            self.assertEqual(len({r.name for r in found}), len(found))
            for r in found:
                if r.kind != "net":  # its program has the number
                    self.assertGreater(r.flops, 0, r.name)
                    self.assertGreater(r.bytes, 0, r.name)
                self.assertTrue(r.describe())
            self.assertIn(g, rows.GOALS)

    def test_a_transformer_layer_has_its_arithmetic(self):
        """BERT at 1024 tokens: four projections, two matmuls of attention, two of the feed-forward
        part."""
        bert = {r.name: r for r in rows.group("matmul") if r.name.startswith("bert")}
        count = {"bert proj": 4}
        flops = sum(count.get(n, 1) * r.flops for n, r in bert.items())
        d, t = 1024, 1024
        self.assertEqual(flops, 2 * t * (12 * d * d) + 2 * 2 * t * t * d)

    def test_decoding_streams_more_than_caches_keep(self):
        for r in rows.group("decode"):
            self.assertTrue(r.constant)
            self.assertGreaterEqual(4 * r.n * r.k * r.copies, rows.FAR, r.name)
            self.assertLess(4 * r.n * r.k * (r.copies - 1), rows.FAR, r.name)

    def test_a_task_gives_its_convolution(self):
        task = """graph {
          input %0: f32[1,8,30,41] @clast
          const %1: f32[12,4,5,3]
          const %2: f32[12]
          %3: f32[1,12,15,42] = Conv(%0, %1, %2) {dilations=[1,1], group=2, kernel_shape=[5,3], \
pads=[2,1,2,2], strides=[2,1]}
          const %4: f32[] = [0.0]
          const %5: f32[] = [6.0]
          %6: f32[1,12,15,42] @clast = Clip(%3, %4, %5)
          output %6
        }"""
        (row,) = rows.convs_of(task.splitlines())
        self.assertEqual(row.x, (1, 8, 30, 41))
        self.assertEqual(row.y, (1, 12, 15, 42))
        self.assertEqual(row.weights, (12, 4, 5, 3))
        self.assertEqual(row.activation, "Relu6")
        self.assertEqual(row.flops, 2 * 12 * 4 * 5 * 3 * 15 * 42)

    def test_layers_of_networks(self):
        found = {r.name: r for r in rows.group("conv")}
        first = found["resnet50 3,224,224>64 7x7/2"]
        self.assertEqual(first.y, (1, 64, 112, 112))
        self.assertEqual(first.activation, "Relu")
        self.assertEqual(found["resnet50 64,56,56>256 1x1"].activation, "")
        self.assertEqual(found["mobilenetv2 960,7,7>960 3x3 g960"].weights, (960, 1, 3, 3))
        for r in found.values():
            self.assertLessEqual(4 * (math.prod(r.x) + math.prod(r.y)), rows.LARGE)


    def test_the_rows_whose_kernels_are_hashed_are_these(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench/graphs.txt")) as f:
            self.assertEqual(f.read(), graphs.text(), "tool/kernel-hashes --update writes them")


class Stats(unittest.TestCase):
    def test_median(self):
        self.assertEqual(stats.median([3, 1, 2]), 2)
        self.assertEqual(stats.median([4, 1, 2, 3]), 2.5)
        self.assertEqual(stats.median([7]), 7)

    def test_interval_is_within_and_ordered(self):
        rng = random.Random(1)
        for n in range(1, 60):
            x = [rng.random() for _ in range(n)]
            low, high = stats.interval(x)
            self.assertLessEqual(min(x), low)
            self.assertLessEqual(low, stats.median(x))
            self.assertLessEqual(stats.median(x), high)
            self.assertLessEqual(high, max(x))

    def test_interval_covers_the_median(self):
        """Of an exponential distribution: at least 95 %, without being far too wide."""
        rng = random.Random(2)
        for n in (8, 25, 40):
            hit = 0
            for _ in range(4000):
                low, high = stats.interval([rng.expovariate(1) for _ in range(n)])
                hit += low <= math.log(2) <= high
            self.assertGreater(hit / 4000, 0.94)
            self.assertLess(hit / 4000, 0.995)

    def test_ratio_cancels_slow_rounds(self):
        rng = random.Random(3)
        slow = [rng.uniform(1, 5) for _ in range(25)]
        middle, low, high = stats.ratio([3 * s for s in slow], [2 * s for s in slow])
        for r in (middle, low, high):
            self.assertAlmostEqual(r, 1.5)

    def test_geomean(self):
        self.assertAlmostEqual(stats.geomean([2, 8]), 4)

class Workers:
    """Threads that do a given amount of work on request."""

    def __init__(self, amounts):
        self.amounts, self.done = amounts, threading.Barrier(len(amounts) + 1)
        self.start = threading.Barrier(len(amounts) + 1)
        self.threads = [threading.Thread(target=self.member, args=(a,)) for a in amounts]
        for t in self.threads:
            t.start()

    def member(self, amount):
        while self.start.wait() is not None and amount[0]:
            hashlib.sha256(bytes(amount[0])).digest()  # others go on meanwhile
            self.done.wait()

    def work(self):
        self.start.wait()
        self.done.wait()

    def end(self):
        for a in self.amounts:
            a[0] = 0
        self.start.wait()
        for t in self.threads:
            t.join()


class Places(unittest.TestCase):
    def test_busy_threads_are_kept_apart(self):
        """Busy threads get a processor each; idle ones and those started later are not bound."""
        if not places.used():
            self.skipTest("the system does not report the time of threads")
        all_cpus = os.sched_getaffinity(0)
        there, workers = places.Places(), Workers([[32 << 20], [1], [16 << 20]])
        try:
            ids = [t.native_id for t in workers.threads]
            n = min(2, len(all_cpus))
            moved = there.apart(workers.work, 2)
            self.assertEqual(moved, [ids[0], ids[2]][:n])
            given = [os.sched_getaffinity(t) for t in moved]
            self.assertEqual([len(g) for g in given], [1] * n)
            self.assertEqual(len(set().union(*given)), n)
            for t in [ids[1], os.getpid()]:
                self.assertEqual(os.sched_getaffinity(t), all_cpus)
            there.anywhere()
            for t in ids + [os.getpid()]:
                self.assertEqual(os.sched_getaffinity(t), all_cpus)
        finally:
            workers.end()


unittest.main(argv=sys.argv[:1])
