# SPDX-License-Identifier: Apache-2.0
#
# bench_matmuls.py BUILD: shapes and statistics of tool/device-check gemm; matmuls as
# cuBLAS's documentation defines them, by a stand-in in memory of this process; no GPU is needed.
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../bench"))
sys.dont_write_bytecode = True
import cublas  # noqa: E402
import matmuls  # noqa: E402

QUERN = os.path.join(sys.argv[1], "quern")
KINDS = {kind: size for size, kind, _ in cublas.TYPES.values()}


def out(pointer, value):
    pointer._obj.value = value


class Cuda:
    """A simulated CUDA driver on this process's memory; a run takes a millisecond."""

    def __init__(self):
        self.memory, self.clock, self.at = {}, 0, {}

    def __getattr__(self, name):
        if name in ("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuEventSynchronize"):
            return lambda *args: 0
        raise AttributeError(name)

    def cuMemAlloc_v2(self, to, size):
        data = ctypes.create_string_buffer(size.value)
        out(to, ctypes.addressof(data))
        self.memory[ctypes.addressof(data)] = data
        return 0

    def cuMemFree_v2(self, at):
        del self.memory[at.value]
        return 0

    def cuMemcpyHtoD_v2(self, to, data, n):
        ctypes.memmove(to.value, data, n.value)
        return 0

    def cuMemcpyDtoD_v2(self, to, data, n):
        ctypes.memmove(to.value, data.value, n.value)
        return 0

    def cuMemcpyDtoH_v2(self, to, data, n):
        ctypes.memmove(to, data.value, n.value)
        return 0

    def cuEventCreate(self, to, flags):
        out(to, 1 + len(self.at))
        self.at[len(self.at) + 1] = 0
        return 0

    def cuEventRecord(self, event, stream):
        self.at[event.value] = self.clock
        return 0

    def cuEventElapsedTime(self, to, a, b):
        out(to, float(self.at[b.value] - self.at[a.value]))
        return 0


class Blas:
    """Column-major GEMM, c = a b, with leading dimensions and strides in elements."""

    def __init__(self, cuda):
        self.cuda, self.n_runs, self.damage = cuda, 0, 0

    def cublasCreate_v2(self, to):
        return 0

    def cublasGetVersion_v2(self, handle, to):
        out(to, 130000)
        return 0

    def cublasGemmEx(self, h, ta, tb, m, n, k, one, a, at, lda, b, bt, ldb, zero, c, ct, ldc, how, algo):
        none = cublas.Long(0)
        return self.cublasGemmStridedBatchedEx(
            h, ta, tb, m, n, k, one, a, at, lda, none, b, bt, ldb, none, zero, c, ct, ldc, none, cublas.Int(1), how, algo
        )

    def cublasGemmStridedBatchedEx(
        self, h, ta, tb, m, n, k, one, a, at, lda, sa, b, bt, ldb, sb, zero, c, ct, ldc, sc, count, how, algo
    ):
        self.cuda.clock += 1
        self.n_runs += 1
        if self.n_runs > 1:  # the result is there
            return 0
        size, kind = KINDS[at.value], at.value
        get = lambda p, i: cublas.decode(ctypes.string_at(p.value + i * size, size), kind)
        for g in range(count.value):
            for i in range(m.value):
                for j in range(n.value):
                    terms = (
                        get(a, g * sa.value + i + t * lda.value) * get(b, g * sb.value + t + j * ldb.value)
                        for t in range(k.value)
                    )
                    y = cublas.encode([sum(terms) + self.damage], size, kind)
                    ctypes.memmove(c.value + (g * sc.value + i + j * ldc.value) * size, y, size)
        return 0


class Library(unittest.TestCase):
    def setUp(self):
        self.cuda = Cuda()
        self.blas = Blas(self.cuda)
        self.engine = cublas.Cublas(self.cuda, self.blas)

    def ask(self, kind, batch, m, n, k):
        return self.engine.time({"type": kind, "batch": batch, "m": m, "n": n, "k": k, "samples": 3})

    def test_matmuls_of_consecutive_rows(self):
        for kind in cublas.TYPES:
            for sizes in ((1, 3, 5, 7), (4, 5, 2, 3), (1, 1, 1, 1)):
                self.blas.n_runs = 0
                seconds = self.ask(kind, *sizes)["seconds"]
                self.assertEqual(len(seconds), 3)
                for s in seconds:
                    self.assertAlmostEqual(s, 1e-3)
                self.assertFalse(self.cuda.memory)

    def test_a_wrong_result_is_found_and_memory_given_back(self):
        self.blas.damage = 1
        with self.assertRaises(RuntimeError):
            self.ask("fp32", 2, 3, 4, 5)
        self.assertFalse(self.cuda.memory)

    def test_content_repeats_a_block(self):
        self.engine.memory = []
        n = 2 * cublas.BLOCK + 12345
        at = self.engine.operand(n, 2, cublas.BF16)
        data = ctypes.string_at(at.value, 2 * n)
        for i in (0, cublas.BLOCK - 1, cublas.BLOCK, 2 * cublas.BLOCK, n - 1):
            want = self.engine.values[i % cublas.BLOCK]
            self.assertAlmostEqual(cublas.decode(data[2 * i : 2 * i + 2], cublas.BF16), want, delta=abs(want) / 128)
        self.engine.driver("cuMemFree_v2", at)


class Rows(unittest.TestCase):
    def test_shapes_are_distinct(self):
        found = matmuls.shapes()
        self.assertEqual(len({matmuls.shape(r) for r in found}), len(found))
        self.assertEqual([r.m for r in found[: len(matmuls.SQUARES)]], list(matmuls.SQUARES))
        self.assertIn((32, 2048, 2048, 128), [matmuls.shape(r) for r in found])

    def test_shapes_are_read(self):
        self.assertEqual([matmuls.shape(r) for r in matmuls.read_shapes("3x4x5,2x3x4x5")], [(1, 3, 4, 5), (2, 3, 4, 5)])
        for bad in ("", "3x4", "0x1x1", "1x2x3x4x5", "axbxc", "-1x2x3"):
            with self.assertRaises(ValueError):
                matmuls.read_shapes(bad)

    def test_configurations_are_understood(self):
        """By quern gemm itself: it accepts them, and fails at the device, which has no library."""
        for r in matmuls.shapes() + matmuls.read_shapes("2x3x5x7"):
            with tempfile.TemporaryDirectory() as d:
                with open(d + "/c.json", "w") as f:
                    json.dump(matmuls.configuration(r), f)
                args = [QUERN, "gemm", d + "/c.json", d + "/r.json", "--search", "--device", "null", "--dtype", "tf32", "--baseline", "vendor"]
                p = subprocess.run(args, capture_output=True, text=True)
                self.assertIn("knows no library with GEMM", p.stderr, r.name)


class Counting(unittest.TestCase):
    HEAD = "device,toolchain,task,sizes,candidate,kernel,status,reason,seconds,reference_seconds,cold\n"

    def text(self, *lines):
        return self.HEAD + "".join('"d","t","x","","%s","k",%s,"%s",%s,%s,%s\n' % x for x in lines)

    def test_the_best_is_by_ratios(self):
        """b is slower than a in seconds, because it was timed while the machine was slow."""
        found = matmuls.trials(self.text(
            ("base", "ok", "", 4, 0, 0), ("base", "ok", "", 1, 0, 1),
            ("a", "ok", "", 3, 4, 0), ("a", "ok", "", 3.2, 4, 0), ("b", "ok", "", 5, 10, 0),
            ("c", "slow", "", 0.1, 4, 0), ("d", "wrong", "y[3], 1 for 2", "", "", ""), ("e", "new", "", "", "", ""),
            ("f", "wrong", "other", "", "", ""),
        ))  # fmt: skip
        name, seconds = matmuls.best(found)
        self.assertEqual((name, seconds), ("b", [2.0]))
        self.assertEqual(matmuls.failures(found), {"wrong": [2, "d", "y[3], 1 for 2"]})

    def test_nothing_and_the_reference_alone(self):
        self.assertIsNone(matmuls.best(matmuls.trials("")))
        self.assertIsNone(matmuls.best(matmuls.trials(self.text(("a", "build", "no", "", "", "")))))
        alone = matmuls.trials(self.text(("base", "ok", "", 4, 0, 0), ("base", "ok", "", 6, 0, 0)))
        self.assertEqual(matmuls.best(alone), ("base", [4.0, 6.0]))

    def test_ratio_has_the_true_one_between(self):
        rng, hit = random.Random(1), 0
        for _ in range(500):
            ours = [1 + rng.expovariate(5) for _ in range(20)]
            theirs = [2 * (1 + rng.expovariate(5)) for _ in range(40)]
            middle, low, high = matmuls.ratio(ours, theirs)
            self.assertTrue(low <= middle <= high)
            hit += low <= 2 <= high
        self.assertGreater(hit, 450)

    def test_limits_and_peaks(self):
        limit = matmuls.limits(
            "f32 multiply-adds              29000.0 GFLOP/s\n"
            "16x8x16:f16,f16,f32,f32       500000.0 GFLOP/s, right\n"
            "16x8x16:f16,f16,f16,f16       900000.0 GFLOP/s, right\n"
            "16x8x16:bf16,bf16,f32,f32     400000.0 GFLOP/s, WRONG\n"
            "16x8x8:tf32,tf32,f32,f32      156000.0 GFLOP/s, right\n"
        )
        self.assertEqual(limit, {"fp32": 29.0, "fp16": 500.0, "bf16": 29.0, "tf32": 156.0})
        row = matmuls.read_shapes("1000x1000x1000")[0]
        x = matmuls.Measured(row, "fp16", ours=[4e-6], before=[2e-6])
        y = matmuls.Measured(row, "tf32", before=[1e-5])
        found = matmuls.peaks(limit, [x, y])
        self.assertEqual(found["fp32"], (29.0, "bench/device"))
        self.assertAlmostEqual(found["fp16"][0], 1000.0)
        self.assertAlmostEqual(found["tf32"][0], 200.0)
        self.assertIn("cuBLAS", found["tf32"][1])
        self.assertEqual(matmuls.limits(""), {"fp32": 0.0, "fp16": 0.0, "bf16": 0.0, "tf32": 0.0})

    def test_table(self):
        row, other = matmuls.read_shapes("1000x1000x1000,2x10x10x10")
        rows = [matmuls.Measured(row, "fp32", [1e-3] * 9, [2e-3] * 9, [3e-3] * 9, "family a=1"),
                matmuls.Measured(other, "fp32", text="FAILED: nothing was verified"),
                matmuls.Measured(row, "tf32", [], [1e-3] * 9)]  # fmt: skip
        text = "\n".join(matmuls.table(rows, {"fp32": 4.0}))
        for part in ("2.500 (2.000-3.000)", "50.0", "family a=1", "library +50 % later", "FAILED: nothing was verified",
                     "geometric mean of 1 of 2: 2.500", "tf32, 100 %: 2.00 TFLOP/s (cuBLAS, 1000x1000x1000)"):  # fmt: skip
            self.assertIn(part, text)
        self.assertEqual(matmuls.table([], {}), [])


class Time(unittest.TestCase):
    def test_shares(self):
        """Rows that exceed their share leave less for later ones, and all end in time."""
        rng = random.Random(1)
        for n in (1, 7, 60):
            weights = [rng.choice((1, 1.5, 4)) for _ in range(n)]
            budget, now, skipped = matmuls.Budget(400.0, weights), 0.0, 0
            for _ in range(n):
                seconds = budget.search(now)
                skipped += seconds == 0
                if seconds:
                    took = seconds + rng.uniform(0.5, 4)
                    budget.spent(seconds, took)
                    now += took
            self.assertLess(now, 410)
            self.assertEqual(skipped, 0)
            self.assertGreater(now, 330)
        self.assertEqual(matmuls.Budget(0.0, [1, 1, 1]).search(1.0), 0)

    def test_large_matmuls_get_more(self):
        small, large = (matmuls.Measured(r, "fp32") for r in matmuls.read_shapes("64x64x64,8192x8192x8192"))
        weights = [matmuls.weight(x) for x in (small, large)]
        self.assertAlmostEqual(weights[1], 4)
        budget = matmuls.Budget(100.0, weights)
        self.assertEqual([budget.search(0.0), budget.search(20.0)], [19, 79])


unittest.main(argv=sys.argv[:1])
