# SPDX-License-Identifier: Apache-2.0
#
# bench_forms.py: of small rows of attention, each library of bench/engines.py that is installed gives the result of the definition, whichever of a row's
# forms it is given (bench/attention_forms.py). By the Python of bench/setup.
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench"))
sys.dont_write_bytecode = True
import numpy as np  # noqa: E402

import attention_forms  # noqa: E402
import engines  # noqa: E402
import operands  # noqa: E402
from attention import Attention  # noqa: E402

ROWS = (
    Attention("whole", 12, 12, 4, 4, 16), Attention("causal", 12, 12, 4, 4, 16, True), Attention("causal, shared", 12, 12, 6, 2, 16, True),
    Attention("token", 1, 20, 4, 4, 16), Attention("token, shared", 1, 20, 6, 2, 16),
)  # fmt: skip


def defined(row):
    x, rest = operands.operands(row)
    k, v = (np.repeat(a.astype(np.float64), row.heads // row.groups, 1) for a in rest)
    scores = x @ np.swapaxes(k, 2, 3) / np.sqrt(row.size)
    if row.causal:
        scores += np.triu(np.full((row.queries, row.keys), -np.inf), 1)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def names_of(row):
    """The forms that there are of a row."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "row.onnx")
        attention_forms.save_forms(row, path)
        return list(attention_forms.files(path))


class Forms(unittest.TestCase):
    def check(self, make, row, form):
        """Of the row's files only this one; false: the library does not support it."""
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "row.onnx")
            attention_forms.save_forms(row, path)
            for name, file in attention_forms.files(path).items():
                if name != form:
                    os.remove(file)
            engine = make()
            try:
                engine.load({"row": row, "threads": 1, "model": path, "inputs": None})
            except Exception as e:  # of any library
                return print("%s, %s, %s: not supported: %s" % (make.__name__, row.name, form, str(e)[:100].replace("\n", " ")))
            engine.run()
            want, got = defined(row), engine.results()[0]
            self.assertEqual(got.shape, want.shape)
            self.assertLess(np.abs(got - want).max(), 1e-5 * np.abs(want).max(), "%s, %s, %s" % (make.__name__, row.name, form))
        return True

    def try_all(self, make):
        try:
            make()
        except ImportError as e:
            self.skipTest(str(e))
        for row in ROWS:
            found = {form for form in names_of(row) if self.check(make, row, form)}
            self.assertTrue({"Attention", "parts"} <= found, row.name)

    def test_onnxruntime(self):
        self.try_all(engines.OnnxRuntime)

    def test_openvino(self):
        self.try_all(engines.OpenVino)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
