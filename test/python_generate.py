# SPDX-License-Identifier: Apache-2.0
#
# Text generation of transformers' models through torch.compile(backend="quern"): the tokens are eager PyTorch's, and a call for another token compiles nothing,
# with keys and values that grow and with those in a static cache; caches that are written in place.
import unittest
from unittest import mock

from python_compiler import ALWAYS, Net, can_compile

import torch

import quern
import quern.torch

try:
    import transformers
except ImportError:
    transformers = None

if can_compile:
    from quern._dynamo import recording
    from quern._piece import Piece
    from torch._dynamo.utils import counters

TOKENS = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4, **TOKENS)).eval()


def llama():
    c = transformers.LlamaConfig(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                 max_position_embeddings=64, **TOKENS)
    return transformers.LlamaForCausalLM(c).eval()


@unittest.skipUnless(can_compile and transformers, "text generation needs PyTorch 2.6 or later, onnx, onnxscript and transformers")
class Generate(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        torch._dynamo.reset()

    def generate(self, net, most, **cache):
        """most: graphs, one of which is that of the prompt."""
        ids = torch.randint(1, 97, (2, 7))

        def tokens():
            return net.generate(ids, max_new_tokens=16, do_sample=False, use_cache=True, **cache)
        with torch.no_grad(), recording() as graphs:
            want = tokens()
            net.compile(backend="quern", options=ALWAYS)
            self.assertEqual(tokens().tolist(), want.tolist())
            n = counters["stats"]["unique_graphs"]
            with mock.patch.object(Piece, "make", side_effect=AssertionError("a program is made anew")):
                self.assertEqual(tokens().tolist(), want.tolist())
            self.assertEqual(counters["stats"]["unique_graphs"], n)
        self.assertLessEqual(len(graphs), most)
        for g in graphs:
            self.assertEqual((g.left, [p.reason for p in g.pieces]), ({}, [None]))
        return graphs

    def test_growing(self):
        """Graphs: the prompt, the first token, and all others, by a symbol."""
        for make in (gpt2, llama):
            torch._dynamo.reset()
            with self.subTest(make.__name__):
                self.generate(make(), 3)

    def test_static(self):
        """Of the caches only the new rows are written, once they are there, which is from the second graph on."""
        for make in (gpt2, llama):
            torch._dynamo.reset()
            with self.subTest(make.__name__):
                writes = self.generate(make(), 2, cache_implementation="static")[-1].writes
                whole = [w for w in writes if w.operator is torch.ops.aten.copy_.default]
                self.assertEqual((len(writes), len(whole)), (6, 2))  # keys, values, and the length, of two layers

    def test_writes(self):
        """Writes to buffers, in place where only some of their elements change; repeated calls while a graph is measured change nothing."""
        def index_copy(net, x, i):
            net.rows.index_copy_(1, i, x)
            return net.rows.sum(1)

        def index_put(net, x, i):
            net.rows[:, i] = x
            return net.rows * 2

        def accumulate(net, x, i):
            net.rows.index_put_((torch.arange(3)[:, None], i), x, accumulate=True)
            return net.rows * 2

        def itself(net, x, i):
            net.rows.index_copy_(1, i, net.rows[:, 6:])
            return net.rows.exp()

        def two(net, x, i):
            net.rows[:, i] = x.exp()
            net.other.copy_(net.rows)
            net.rows.add_(1)
            return net.other + net.rows

        def swapped(net, x, i):
            old = net.rows.clone()
            net.rows.copy_(net.other)
            net.other.copy_(old)
            return net.rows + x.sum()

        for f, in_place in ((index_copy, 1), (index_put, 1), (accumulate, 0), (itself, 0), (two, 0), (swapped, 0)):
            for options in (ALWAYS, {}):
                torch._dynamo.reset()
                nets = [Net(f).eval() for _ in range(2)]
                rows, other = torch.randn(3, 8, 4), torch.randn(3, 8, 4)
                for net in nets:
                    net.register_buffer("rows", rows.clone())
                    net.register_buffer("other", other.clone())
                with self.subTest(f.__name__, options=options), torch.no_grad(), recording() as graphs:
                    fast = torch.compile(nets[0], backend="quern", options=options)
                    for k in range(3):
                        x, i = torch.randn(3, 2, 4), torch.tensor([k, k + 3])
                        got, want = fast(x, i), nets[1](x, i)
                        for a, b in ((got, want), (nets[0].rows, nets[1].rows), (nets[0].other, nets[1].other)):
                            torch.testing.assert_close(a, b)
                    self.assertEqual(sum(w.operator is not torch.ops.aten.copy_.default for g in graphs for w in g.writes), in_place)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}, quern {quern.version()}")
    unittest.main(verbosity=1)
