#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# The Python package without PyTorch: operators on arrays of random strides against numpy, programs
# compiled, tuned, saved and loaded, lifetimes, threads, forks, errors. Needs numpy; run by
# test/python.sh with the installed packages.
import gc
import itertools
import os
import pickle
import random
import re
import sys
import tempfile
import threading
import unittest

import numpy as np

import quern

GRAPH = b"""graph {
  input %x: f32[N,3]
  input %s: f32[3]
  const %two: f32[] = [2]
  %a: f32[?] = Mul(%x, %s)
  %y: f32[?] = Add(%a, %two)
  %z: f32[?] = Neg(%x)
  output %y
  output %z
}"""


DECODER = b"""graph {
  input %ids: f32[B,1,S,2]
  input %past_k: f32[B,1,P,2]
  input %past_v: f32[B,1,P,2]
  %y: f32[?], %present_k: f32[?], %present_v: f32[?] = Attention(%ids, %ids, %ids, _, %past_k, %past_v) {is_causal=1}
  output %y
  output %present_k
  output %present_v
}"""


def scattered(rng, shape, dtype=np.float32):
    """Small integers in an array with axes in any order in memory, some reversed, with gaps."""
    order = rng.sample(range(len(shape)), len(shape))
    steps = [rng.choice([1, 1, 2, -1]) for _ in shape]
    room = np.zeros([shape[d] * abs(steps[d]) for d in order], dtype)
    x = room.transpose(np.argsort(order))[(..., *(slice(None, None, s) for s in steps))]
    x[...] = np.random.default_rng(rng.getrandbits(32)).integers(0, 9, shape)
    return x


class Operators(unittest.TestCase):
    def test_strides(self):
        rng = random.Random(1)
        for rank in range(6):
            add = quern.Operator("Add")
            for _ in range(4):
                shape = [rng.randint(1, 5) for _ in range(rank)]
                a, b = scattered(rng, shape), scattered(rng, shape)
                np.testing.assert_array_equal(add(a, b), a + b)
                out = scattered(rng, shape)
                add.run([a, b], [out])
                np.testing.assert_array_equal(out, a + b)

    def test_gaps_stay(self):
        room = np.full((4, 6), 7, np.float32)
        quern.Operator("Neg").run([np.ones((4, 3), np.float32)], [room[:, ::2]])
        np.testing.assert_array_equal(room, np.tile(np.float32([-1, 7]), (4, 3)))

    def test_repeated(self):
        x = np.broadcast_to(np.float32([1, 2]), (3, 2))
        np.testing.assert_array_equal(quern.Operator("Neg")(x), -x)
        with self.assertRaisesRegex(quern.Error, "output 0 has stride 0 on axis 0"):
            quern.Operator("Neg").run([np.ones((3, 2), np.float32)], [np.lib.stride_tricks.as_strided(np.zeros(2, np.float32), (3, 2), (0, 4))])

    def test_types(self):
        for name in "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split():
            x = np.arange(1, 7).astype(name).reshape(2, 3)
            y = quern.Operator("Mul")(x, x)
            self.assertEqual(y.dtype, x.dtype)
            np.testing.assert_array_equal(y, x * x)
        x = np.array([True, False])
        np.testing.assert_array_equal(quern.Operator("Not")(x), ~x)

    def test_short_types(self):
        """Without ml_dtypes: values of i4, codes of f8."""
        i4 = quern.Operator("Cast", {"to": 22})(np.array([-8, 7, 9], np.float32))
        self.assertEqual((i4.dtype, i4.tolist()), (np.int8, [-8, 7, -7]))
        f8 = quern.Operator("Cast", {"to": 17})(np.array([1, -448, 1e9], np.float32))
        self.assertEqual((f8.dtype, f8.tolist()), (np.uint8, [0x38, 0xfe, 0x7e]))

    def test_attributes(self):
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        np.testing.assert_array_equal(quern.Operator("Transpose", {"perm": [2, 0, 1]})(x), x.transpose(2, 0, 1))
        np.testing.assert_allclose(quern.Operator("LeakyRelu", {"alpha": 1 / 3})(-x), -x / 3, rtol=1e-6)
        np.testing.assert_array_equal(quern.Operator("Concat", {"axis": 1})(x, x), np.concatenate([x, x], 1))
        one, two = quern.Operator("Split", {"axis": 2}, outputs=2)(x)
        np.testing.assert_array_equal(one, x[..., :2])
        np.testing.assert_array_equal(two, x[..., 2:])
        with self.assertRaises(quern.Error):
            quern.Operator("Conv", {"auto_pad": 'a"b\\\n'})(np.ones((1, 1, 3)), np.ones((1, 1, 1)))
        np.testing.assert_array_equal(quern.Operator("LeakyRelu", {"alpha": 2})(-x), -2 * x)  # integers for floats
        np.testing.assert_array_equal(quern.Operator("Transpose", {"perm": np.array([2, 0, 1])})(x), x.transpose(2, 0, 1))
        np.testing.assert_array_equal(quern.Operator("Concat", {"axis": np.int64(1)})(x, x), np.concatenate([x, x], 1))
        self.assertEqual(repr(quern.Operator("Concat", {"axis": 1})), "quern.Operator('Concat', {'axis': 1})")
        again = pickle.loads(pickle.dumps(quern.Operator("Split", {"axis": 2}, outputs=2)))
        np.testing.assert_array_equal(again(x)[1], x[..., 2:])

    def test_wrong_attributes(self):
        """Names and kinds are those of the operator's definition."""
        for name, attributes, says in (("Concat", {"axsi": 1}, "'Concat': no attribute 'axsi', expected one of axis"),
                                       ("Conv", {"pads": "x"}, "'Conv': attribute 'pads' is a string, expected integers"),
                                       ("Conv", {"group": 1.5}, "attribute 'group' is a float, expected an integer"),
                                       ("Conv", {"group": [1]}, "attribute 'group' is integers, expected an integer"),
                                       ("Neg", {"axis": 1}, "'Neg': no attribute 'axis', the operator has none"),
                                       ("ReduceSum", {"axis": 1}, "no attribute 'axis', expected one of keepdims"),
                                       ("com.microsoft::FusedConv", {"activate": "Relu"}, "no attribute 'activate', expected one of activation"),
                                       ("quern::WeightedFilter", {"kernel": [3, 3]}, "no attribute 'kernel'")):
            with self.assertRaisesRegex(quern.Error, re.escape(says)) as c:
                quern.Operator(name, attributes)
            self.assertEqual(c.exception.status, "INPUT")
        for value in (None, object(), [1, "x"], [None], [[1]], np.ones((2, 2))):
            with self.assertRaisesRegex(TypeError, r"(?s)attribute .pads. is .*, expected an integer"):
                quern.Operator("Conv", {"pads": value})

    def test_list(self):
        conv = quern.operators()["Conv"]
        self.assertEqual((conv["attributes"]["pads"], conv["opset"]), ("ints", 1))
        self.assertIn("float16", conv["types"])
        self.assertEqual(quern.operators()["quern::WeightedFilter"]["attributes"]["transform"], "string")

    def test_named_sizes(self):
        add = quern.Operator("Add", sizes="H:W,H:W")
        for h, w in itertools.product((1, 2, 17), (1, 9)):
            x = np.random.rand(h, w)
            np.testing.assert_array_equal(add(x, x), x + x)
        with self.assertRaisesRegex(quern.Error, r"input 1 has size 3 on axis 0, expected 2 \('H'\)"):
            add(np.ones((2, 2)), np.ones((3, 2)))

    def test_left_out(self):
        x = np.float32([-3, 0, 5])
        np.testing.assert_array_equal(quern.Operator("Clip")(x, None, np.float32(2)), np.minimum(x, 2))

    def test_errors(self):
        with self.assertRaisesRegex(quern.Error, "NoSuch") as c:
            quern.Operator("NoSuch")(np.ones(2))
        self.assertIn(c.exception.status, ("UNSUPPORTED", "INPUT"))
        with self.assertRaisesRegex(TypeError, "input 0 has elements of type >f4"):
            quern.Operator("Neg")(np.ones(2, ">f4"))
        with self.assertRaisesRegex(TypeError, "complex128"):
            quern.Operator("Neg")(np.ones(2, complex))
        with self.assertRaisesRegex(ValueError, "strides of"):
            quern.Operator("Neg")(np.ones(3, [("a", "f4"), ("b", "u1")])["a"])
        with self.assertRaisesRegex(quern.Error, "size 'H!'"):
            quern.Operator("Neg", sizes="H!")

    def test_empty(self):
        self.assertEqual(quern.Operator("Neg")(np.ones((0, 3), np.float32)).shape, (0, 3))

    def test_threads(self):
        op, wrong = quern.Operator("Add"), []

        def work(k):
            for i in range(20):
                x = np.full((k + 1, 5), i, np.float32)
                if not (op(x, x) == 2 * i).all():
                    wrong.append((k, i))
        them = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        [t.start() for t in them]
        [t.join() for t in them]
        self.assertEqual(wrong, [])

    def test_fork(self):
        op, x = quern.Operator("Neg"), np.ones((64, 64), np.float32)
        op(x)
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if (op(x) == -1).all() else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue((op(x) == -1).all())


class Programs(unittest.TestCase):
    def setUp(self):
        self.x, self.s = np.random.rand(5, 3).astype("f"), np.random.rand(3).astype("f")

    def check(self, program, x=None):
        x = self.x if x is None else x
        y, z = program(x, self.s)
        np.testing.assert_allclose(y, x * self.s + 2, rtol=1e-6)
        np.testing.assert_array_equal(z, -x)

    def test_assumed_sizes(self):
        one = np.ones(3, np.float32)
        for assume, good, bad in [({"N": 4}, [4], [3, 5]), ({"N": "%4"}, [4, 8], [6]), ({"N": "2..5"}, [2, 5], [1, 6])]:
            p = quern.compile(GRAPH, assume=assume)
            for n in good:
                self.assertEqual(p(np.zeros((n, 3), np.float32), one)[0].shape, (n, 3))
            for n in bad:
                with self.assertRaisesRegex(quern.Error, f"N = {n}, but option assume needs N"):
                    p(np.zeros((n, 3), np.float32), one)

    def test_compile(self):
        p = quern.compile(GRAPH, sizes={"N": 5})
        self.assertEqual((p.inputs, p.outputs, p.input_shape(0), p.input_dtype(0)), (["x", "s"], ["y", "z"], ("N", 3), "float32"))
        self.check(p)
        self.check(p, self.x[:1])
        self.check(p, self.x[::-2])
        self.check(p, np.asfortranarray(self.x))
        np.testing.assert_array_equal(p(s=self.s, x=self.x)[1], p(self.x, s=self.s)[1])

    def test_instruction_sets(self):
        if os.uname().machine != "x86_64":
            self.skipTest("this processor is no x86-64")
        with tempfile.TemporaryDirectory() as d:
            p = quern.compile(GRAPH, isa=["x86-64", "x86-64-v2"])
            self.check(p)
            p.save(f"{d}/net.dnx")
            self.check(quern.load(f"{d}/net.dnx"))
            self.check(quern.load(f"{d}/net.dnx", isa="x86-64"))
            with self.assertRaisesRegex(quern.Error, "no variant 'x86-64-v3'; its code is for x86-64, x86-64-v2"):
                quern.load(f"{d}/net.dnx", isa="x86-64-v3")
            self.check(quern.compile(GRAPH, isa="native"))
            quern.tune(GRAPH, f"{d}/net.db", seconds=0.5, isa=["x86-64", "x86-64-v2"])
            with self.assertRaisesRegex(quern.Error, "no instruction set 'x86-65'"):
                quern.compile(GRAPH, isa="x86-65")

    def test_results_live_on(self):
        p = quern.compile(GRAPH)
        y, z = p(self.x, self.s)
        want = y.copy()
        y2, _ = p(self.x + 1, self.s)
        del p, z
        gc.collect()
        np.testing.assert_array_equal(y, want)
        y[0] = 1
        self.assertTrue((y2[0] != 1).all())

    def test_files(self):
        with tempfile.TemporaryDirectory() as d:
            net, dnx, db = (os.path.join(d, n) for n in ("net.graph", "net.dnx", "net.db"))
            with open(net, "wb") as f:
                f.write(GRAPH)
            events = []
            quern.tune(net, db, seconds=1, sizes={"N": 100}, progress=events.append)
            self.assertTrue(events and events[-1]["done"] > 0)
            quern.compile(net, database=db).save(dnx)
            p = quern.load(dnx, threads=1)
            self.check(p)
            with self.assertRaisesRegex(quern.Error, "missing.dnx") as c:
                quern.load(os.path.join(d, "missing.dnx"))
            self.assertEqual(c.exception.status, "SYSTEM")
            with self.assertRaisesRegex(quern.Error, "not signed"):
                quern.load(dnx, require_signature=True)

    def test_state(self):
        x = np.random.default_rng(4).standard_normal((2, 1, 9, 2)).astype("f")
        none = np.zeros((2, 1, 0, 2), "f")
        for state in (None, True, {"past_k": "present_k"}):
            net = quern.compile(DECODER, state=state)
            want = net(x, none, none)[0]
            s = net.state(9, sizes={"B": 2})
            self.assertEqual((s.inputs, s.outputs, s.maximum, len(s)), (["ids"], ["y"], 9, 0))
            got = [s(x[:, :, :4]), s(ids=x[:, :, 4:5]), s(x[:, :, 5:7])]
            other = s.fork()
            got.append(s(x[:, :, 7:]))
            np.testing.assert_allclose(np.concatenate(got, 2), want, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(other(x[:, :, 7:]), want[:, :, 7:], rtol=1e-5, atol=1e-6)
            with self.assertRaisesRegex(quern.Error, "9 positions and 1 new ones"):
                s(x[:, :, :1])
            other.truncate(3)
            self.assertEqual(len(other), 3)
            with tempfile.TemporaryDirectory() as folder:
                other.save(os.path.join(folder, "state"))
                s.load(os.path.join(folder, "state"))
            np.testing.assert_allclose(s(x[:, :, 3:]), want[:, :, 3:], rtol=1e-5, atol=1e-6)
            self.assertGreaterEqual(s.nbytes, 2 * 2 * 9 * 2 * 4)
            with self.assertRaisesRegex(TypeError, "no input 'past_k'"):
                s(x, past_k=none)

    def test_errors(self):
        p = quern.compile(GRAPH)
        with self.assertRaisesRegex(quern.Error, "input 'x' has size 4 on axis 1, expected 3"):
            p(np.ones((2, 4), np.float32), self.s)
        with self.assertRaisesRegex(quern.Error, "input 'x' is f64, expected f32"):
            p(np.ones((2, 3)), self.s)
        with self.assertRaisesRegex(TypeError, r"2 inputs \(x, s\), 1 were given"):
            p(self.x)
        with self.assertRaisesRegex(TypeError, "no input 't'"):
            p(self.x, t=self.s)
        x, s, y = self.x, self.s, [np.zeros((5, 3), "f") for _ in range(2)]
        both = "inputs are x float32[N,3], s float32[3], outputs y float32[N,3], z float32[N,3]: named sizes may vary, numbers are fixed"
        for error, says, run in ((TypeError, "2 inputs (x, s), 1 were given: add s", lambda: p(x)),
                                 (TypeError, "2 inputs (x, s), 3 were given: one array for each", lambda: p(x, s, s)),
                                 (TypeError, "pass the arrays of a dictionary by name, program(**inputs)", lambda: p({"x": x, "s": s})),
                                 (TypeError, "no input 'S', there are x, s; did you mean 's'?", lambda: p(x, S=s)),
                                 (TypeError, "input 'x' is given twice, by position and by name: pass it once", lambda: p(x, x=x)),
                                 (TypeError, "input 's' is None: every input of a program is needed", lambda: p(x, None)),
                                 (TypeError, "expected an array of numbers", lambda: p(x, "s")),
                                 (TypeError, "expected an array of numbers", lambda: p(x, object())),
                                 (TypeError, "pass real and imaginary parts as numbers of their own", lambda: p(x + 0j, s)),
                                 (TypeError, "x.astype(x.dtype.newbyteorder('='))", lambda: p(x.astype(">f4"), s)),
                                 (quern.Error, "input 'x' is f64, expected f32; convert it, x.astype('float32')", lambda: p(x.astype("d"), s)),
                                 (quern.Error, "input 's' is i64, expected f32; convert it, s.astype('float32')", lambda: p(x, [1, 2, 3])),
                                 (quern.Error, "input 'x' has rank 1, expected 2; " + both, lambda: p(s, s)),
                                 (quern.Error, "input 'x' has size 2 on axis 1, expected 3; " + both, lambda: p(x[:, :2], s)),
                                 (quern.Error, "input 'x' has size 4 on axis 1, expected 3; " + both, lambda: p.shapes_for((5, 4), (3,))),
                                 (TypeError, "2 outputs (y, z), 1 were given: one array for each", lambda: p.run([x, s], y[:1])),
                                 (quern.Error, "output 'z' has another type or shape; " + both, lambda: p.run([x, s], [y[0], y[1][:4]]))):
            with self.subTest(says), self.assertRaisesRegex(error, re.escape(says)):
                run()
        with self.assertRaisesRegex(quern.Error, "no size named 'Q'"):
            quern.compile(GRAPH, sizes={"Q": 1})
        with self.assertRaises(quern.Error):
            quern.compile(b"")
        with self.assertRaises(quern.Error):
            quern.compile(GRAPH[:40])


if __name__ == "__main__":
    print(f"python {sys.version.split()[0]}, numpy {np.__version__}, {quern.library_path()}")
    unittest.main(verbosity=0)
