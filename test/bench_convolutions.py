# SPDX-License-Identifier: Apache-2.0
#
# bench_convolutions.py BUILD: how tool/device-check conv parses the output of quern conv, and its tables; a
# small data set on the processor, no GPU is needed.
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../bench"))
sys.dont_write_bytecode = True
import convolutions  # noqa: E402

QUERN = os.path.join(sys.argv[1], "quern")
NAME = "directConvNCDHWdace"


def quern(*args, cwd="."):
    return subprocess.run([os.path.abspath(QUERN), "conv", *args], cwd=cwd, stdout=subprocess.PIPE, text=True, check=False).stdout


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as d:
            cls.said = quern("sample3D", "--implementation", NAME, "--baseline", "reference", "--batch", "1", "--compareprof", "--json",
                             "--warmupiter", "1", "--totaliter", "8", "--threads", "1", "--db", "a.db", "--out", "out", cwd=d)  # fmt: skip

    def test_names(self):
        names = convolutions.implementations(quern("--list"))
        self.assertEqual((names[0], len(names), len(set(names))), ("tuned", 10, 10))
        self.assertIn(NAME, names)

    def test_count(self):
        asked = [None, "2:5", "2:", ":5", "2", "5:99", "99"]
        self.assertEqual([convolutions.count(7, x) for x in asked], [7, 3, 5, 5, 1, 2, 1])

    def test_layers(self):
        found = convolutions.layers(self.said)
        self.assertEqual(sorted(found), [0, 1])
        for x in found.values():
            self.assertTrue(x.ok and x.baseline == "reference" and x.candidate.startswith("conv_igemm"))
            self.assertTrue(x.ms[1] <= x.ms[0] <= x.ms[2] and x.base[1] <= x.base[0] <= x.base[2])
            self.assertTrue(x.ratio[1] <= x.ratio[0] <= x.ratio[2] and x.gflop > 0 and x.gbytes > 0)

    def test_cut_off(self):
        lines = self.said.splitlines()
        whole = convolutions.layers(lines[0] + "\n" + lines[1][:40] + "\nnoise\n3\n")
        self.assertEqual(len(whole), 1)
        self.assertEqual(convolutions.layers(""), {})

    def test_wrong(self):
        x = json.loads(self.said.splitlines()[0])
        x.update(ok=False, report="wrong:\n   one tap")
        for key in ("ms", "baseline_ms", "ratio", "ratio_low", "ratio_high"):
            del x[key]
        found = convolutions.layers(json.dumps(x))
        text = "\n".join(convolutions.table(NAME, found, {"gflops": 1.0, "gbps": 1.0}))
        self.assertIn("FAILED: wrong: one tap", text)
        self.assertNotIn("geometric mean", text)

    def test_table(self):
        found = convolutions.layers(self.said)
        x = found[0]
        self.assertIsNone(convolutions.share(x, {}))
        limit = {"gflops": x.gflop / x.ms[0] * 1e3 * 2, "gbps": x.gbytes / x.ms[0] * 1e3 * 4}  # half of one, a quarter of the other
        self.assertAlmostEqual(convolutions.share(x, limit), 0.5)
        text = convolutions.table(NAME, found, limit)
        self.assertEqual(len(text), 6)
        self.assertIn(" 50.0 ", text[3])
        mean = (found[0].ratio[0] * found[1].ratio[0]) ** 0.5
        self.assertIn("2 of 2: %.3f times" % mean, text[-1])

    def test_overview(self):
        found = convolutions.layers(self.said)
        text = convolutions.overview({"tuned": {0: found[0]}, NAME: found})
        self.assertEqual(len(text), 6)
        self.assertTrue(text[-1].split()[1] == "-" and text[-1].split()[2] == "%.3f" % found[1].ratio[0])
        self.assertEqual(convolutions.overview({"tuned": {}}), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
