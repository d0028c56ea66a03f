# SPDX-License-Identifier: Apache-2.0
#
# bench_attention.py BUILD: rows and commands of tool/device-check attention, what it reads of quern's
# output, and its table; small shapes on the processor, no GPU is needed.
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../bench"))
sys.dont_write_bytecode = True
import attention_gpu  # noqa: E402
import matmuls  # noqa: E402
import worker  # noqa: E402

QUERN = os.path.join(sys.argv[1], "quern")


class Attention(unittest.TestCase):
    def test_rows(self):
        found = attention_gpu.rows()
        self.assertEqual(len({r.name for r in found}), len(found))
        self.assertEqual({r.causal for r in found}, {False, True})
        self.assertIn("1x32x4096x128", [attention_gpu.sizes(r) for r in found])
        whole, causal = attention_gpu.read_shapes("3x5x7")
        self.assertEqual((attention_gpu.sizes(whole), whole.flops, causal.flops), ("1x3x5x7", 4 * 3 * 25 * 7, 4 * 3 * 15 * 7))
        for text in ("3x5", "3x5x0", "3x5x7,", "axbxc"):
            with self.assertRaises(ValueError):
                attention_gpu.read_shapes(text)

    def test_command(self):
        """The command measures a small row; what is read of it is that row's."""
        with tempfile.TemporaryDirectory() as d:
            for i, r in enumerate(attention_gpu.read_shapes("2x40x16")):
                x = matmuls.Measured(r, attention_gpu.TYPES[i])
                args = attention_gpu.command(x, "cpu", os.path.join(d, "a%d.db" % i), 1)
                p = subprocess.run([QUERN, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
                self.assertEqual(p.returncode, 0, p.stdout)
                seconds, kernels = attention_gpu.result(p.stdout)
                self.assertTrue(0 < seconds < 10)
                self.assertIn("2x40x", kernels)

    def test_result(self):
        self.assertIsNone(attention_gpu.result('{"event":"progress"}\n17\nquern: nothing was measured\n'))
        done = '{"event":"done","ms":2.5,"kernels":[{"kernel":"mma_attention_f16_1x2x3x4_0123","ms":2.25}]}'
        self.assertEqual(attention_gpu.result("words\n" + done + "\n{"), (2.5e-3, "mma_attention_f16_1x2x3x4 2.2500"))

    def test_table(self):
        fast, none = (matmuls.Measured(r, "fp16") for r in attention_gpu.read_shapes("2x40x16"))
        fast.ours, fast.before, fast.behind = [fast.row.flops * 1e-12], [fast.row.flops * 2e-12] * 3, [fast.row.flops * 2e-12] * 3
        none.text = "FAILED: nothing"
        text = "\n".join(matmuls.table([fast, none], {"fp16": 2.0}, attention_gpu.SUBJECT))
        self.assertIn("PyTorch", text)
        self.assertIn("1x2x40x16", text)
        self.assertIn(" 50.0 ", text)
        self.assertIn("geometric mean of 1 of 2: 2.000", text)

    def test_peer(self):
        """Without a CUDA device the worker gives the reason."""
        w = worker.Worker("sdpa", 1, {})
        try:
            w.ask(60, do="hello")
        except worker.Failed as e:
            self.assertTrue(str(e))
        finally:
            w.close()
            w.log.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
