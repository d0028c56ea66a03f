# SPDX-License-Identifier: Apache-2.0
#
# bench_filters.py BUILD: the graphs that tool/device-check filter asks for are those of its rows, and
# its table; small pictures on the processor, no GPU is needed.
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../bench"))
sys.dont_write_bytecode = True
import filters  # noqa: E402
import rows  # noqa: E402

QUERN = os.path.abspath(os.path.join(sys.argv[1], "quern"))


def quern(*args):
    return subprocess.run([QUERN, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


class Filters(unittest.TestCase):
    def test_rows(self):
        found = rows.filters()
        self.assertEqual(sorted({(r.op, r.k) for r in found}), sorted(
            ("WeightedFilter" + op, k) for op in ("", "GradInput", "GradWeights") for k in (5, 17)))  # fmt: skip
        self.assertEqual({(r.c, r.h, r.w) for r in found}, {(3, 1080, 1920), (3, 540, 960)})

    def test_graphs(self):
        """Each graph is accepted, has the row's sizes, and computes the right result."""
        with tempfile.TemporaryDirectory() as d:
            for r in rows.filters():
                small = dataclasses.replace(r, h=7, w=16)
                for kind in filters.KINDS:
                    path = os.path.join(d, "a.graph")
                    with open(path, "w", encoding="utf-8") as f:
                        f.write(filters.graph(small, kind))
                    shown = quern("show", path)
                    self.assertEqual(shown.returncode, 0, shown.stdout)
                    self.assertIn(f"%y: {kind}[{','.join(map(str, small.y))}]", shown.stdout)
                    checked = quern("verify", path, "--untuned", "--seed", "1", "--threads", "1")
                    self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_bytes(self):
        for r in rows.filters():
            self.assertEqual(filters.row_bytes(filters.Measured(r, "f32")), r.bytes)
            self.assertEqual(filters.row_bytes(filters.Measured(r, "f16")) * 2, r.bytes)

    def test_table(self):
        r = rows.filters()
        fast, slow, none = (filters.Measured(r[i], "f32") for i in range(3))
        fast.ms, fast.peer, fast.text = r[0].bytes / 900e6, r[0].bytes / 90e6, "wg_filter.2"
        fast.layer = 123.5
        slow.ms, none.text = r[1].bytes / 700e6, "FAILED: wrong"
        text = filters.table([fast, slow, none], {"gbps": 1000.0})
        self.assertEqual(len(text), 5)
        self.assertIn("    900.0  90.0   123.5000 ", text[1])
        self.assertTrue(text[1].endswith("10.00 wg_filter.2"))
        self.assertIn(" 70.0 ", text[2])
        self.assertTrue(text[3].endswith("FAILED: wrong"))
        self.assertTrue(text[4].startswith("1 of 2 at 80 %"))
        self.assertEqual(len(filters.table([fast, slow, none], {})), 4)

    def test_torch(self):
        """On the CPU: the layer agrees with unfold, and both are timed."""
        build, root = os.path.abspath(sys.argv[1]), os.path.join(HERE, "..")
        has_sanitizers = b"__asan_init" in pathlib.Path(build, "libquern.so").read_bytes()
        if has_sanitizers or subprocess.run(["/usr/bin/python3", "-c", "import numpy, torch"], capture_output=True, check=False).returncode:
            self.skipTest("no PyTorch in /usr/bin/python3, or a library with sanitizers, which cannot be loaded into it")
        for r in rows.filters():
            for how in ("unfold", "layer") if r.k == 5 else ():
                small = dataclasses.replace(r, h=20, w=24)
                args, env = filters.torch_command("/usr/bin/python3", root, build, small, "f32", how, "cpu", ":memory:")
                p = subprocess.run(args, env=env, capture_output=True, text=True, check=False)
                self.assertEqual(p.returncode, 0, p.stderr)
                self.assertGreater(float(p.stdout.split()[-1]), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
