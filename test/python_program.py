#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# Programs from Python: what they say of themselves, measurements, profiles, verification, results in given arrays, arrays of other packages;
# tuning that Ctrl-C, exceptions and time limits stop; progress; threads, forks, pickling. Needs numpy; run by test/python_program.sh.
import ctypes
import gc
import io
import os
import pickle
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import numpy as np

import quern
from quern import _arrays, _progress

GRAPH = b"""graph {
  input %x: f32[N,3]
  input %s: f32[3]
  const %two: f32[] = [2]
  %a: f32[?] = Mul(%x, %s)
  %y: f32[?] = Add(%a, %two)
  %z: f32[?] = Concat(%x, %x) {axis=0}
  output %y
  output %z
}"""

MATMULS = b"""graph {
  input %x: f32[64,64]
  %a: f32[?] = MatMul(%x, %x)
  %b: f32[?] = Sin(%a)
  %y: f32[?] = MatMul(%b, %x)
  output %y
}"""

GEMM = b"""graph {
  input %x: f32[N,3]
  const %w: f32[3,3] = [1, 2, 3, 4, 5, 6, 7, 8, 9]
  %y: f32[?] = MatMul(%x, %w)
  output %y
}"""

COUNTED = b"""graph {
  input %x: f32[N]
  %y: none[?] = NonZero(%x)
  output %y
}"""


def case(seed=0, n=5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3)).astype("f"), rng.standard_normal(3).astype("f")


class Wrapped:
    """An array of another package, by one protocol of its."""

    def __init__(self, x, *protocols):
        for p in protocols:
            setattr(self, p, getattr(x, p))
        self.x = x


class Interface(Wrapped):
    @property
    def __array_interface__(self):
        return self.x.__array_interface__


class DLPack:
    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **how):
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class Described(unittest.TestCase):
    def test_shapes(self):
        p = quern.compile(GRAPH, sizes={"N": 5})
        self.assertEqual(p.input_shapes, {"x": ("N", 3), "s": (3,)})
        self.assertEqual(p.output_shapes["y"], ("N", 3))
        self.assertRegex(p.output_shapes["z"][0], r"^(2\*N|N\*2)$")
        self.assertEqual((p.input_dtypes, p.output_dtypes), ({"x": "float32", "s": "float32"}, {"y": "float32", "z": "float32"}))
        self.assertEqual(p.output_shapes, p.output_shapes)
        x, s = case()
        self.assertEqual(p.shapes_for(x, s), {"y": (5, 3), "z": (10, 3)})
        self.assertEqual(p.shapes_for((7, 3), s=[3]), {"y": (7, 3), "z": (14, 3)})
        self.assertEqual(quern.compile(COUNTED).shapes_for((4,)), {"y": (1, None)})
        with self.assertRaisesRegex(quern.Error, "axis 1"):
            p.shapes_for((7, 4), (3,))
        with self.assertRaisesRegex(TypeError, "2 inputs"):
            p.shapes_for((7, 3))
        with self.assertRaisesRegex(ValueError, "9 axes"):
            p.shapes_for((1,) * 9, (3,))

    def test_repr(self):
        p = quern.compile(GRAPH, sizes={"N": 5})
        self.assertRegex(repr(p), r"^<quern\.Program 'model': x float32\[N,3\], s float32\[3\] -> y float32\[N,3\], z float32\[.*,3\]; cpu.*; no weights")
        self.assertRegex(repr(quern.compile(GEMM)), r"; [1-9]\d* bytes of weights")
        self.assertLess(len(repr(p)), 250)
        self.assertIn("N=5", repr(p) if p.predicted_seconds else "N=5")
        self.assertIsNone(p.seconds)
        p(*case())
        self.assertGreater(p.seconds, 0)
        self.assertIn("measured", repr(p))
        self.assertGreaterEqual(p.memory, 0)
        self.assertEqual(p.device, "cpu")
        self.assertEqual(quern.compile(GRAPH, device="interp").device, "interp")

    def test_help(self):
        import pydoc
        text = pydoc.render_doc(quern, renderer=pydoc.plaintext)
        for word in ("compile(", "tune(", "class Program", "class Operator", "Parameters", "bench("):
            self.assertIn(word, text)
        for name in quern.__all__:
            self.assertTrue(getattr(quern, name).__doc__, name)
        public = [m for c in (quern.Program, quern.Operator, quern.State, quern.Timing, quern.Profile) for n, m in vars(c).items() if n[0] != "_"]
        self.assertEqual([m for m in public if (callable(m) or isinstance(m, property)) and not m.__doc__], [])


class Measured(unittest.TestCase):
    def test_bench(self):
        p = quern.compile(MATMULS)
        x = np.random.default_rng(1).standard_normal((64, 64)).astype("f")
        for t in (p.bench(seconds=0.05), p.bench([x], seconds=0), p.bench({"x": x[:, ::-1]}, seconds=0, warm_up=0)):
            self.assertGreaterEqual(len(t.samples), 3)
            self.assertTrue(0 < t.min <= t.median <= t.max and t.min <= t.mean <= t.max and t.std >= 0)
            self.assertRegex(repr(t), r"<quern\.Timing: .*s, the median of \d+ runs from .*s to .*s>")
        self.assertIn("measured", repr(p))
        g = quern.compile(GRAPH)
        self.assertGreater(g.bench(sizes={"N": 1000}, seconds=0).median, 0)
        with self.assertRaisesRegex(quern.Error, "Q"):
            g.bench(sizes={"Q": 3}, seconds=0)
        with self.assertRaisesRegex(TypeError, "2 inputs"):
            g.bench([x], seconds=0)
        with self.assertRaisesRegex(quern.Error, "axis 1"):
            g.bench([x, x[0, :3]], seconds=0)
        g(*case())  # the lock is free

    def test_profile(self):
        p = quern.compile(MATMULS)
        rows = p.profile(runs=3)
        self.assertIsInstance(rows, list)
        self.assertEqual(set(map(tuple, rows)), {("layer", "nodes", "operators", "ms", "percent", "gflops", "gbps", "flops", "bytes", "kernel", "task")})
        self.assertAlmostEqual(sum(r["percent"] for r in rows), 100, places=6)
        self.assertGreater(rows.seconds, 0)
        self.assertIn("MatMul", " ".join(r["operators"] for r in rows))
        products = sum(r["flops"] for r in rows if "MatMul" in r["operators"])
        self.assertTrue(4 * 64**3 <= products <= 4 * 64**3 + 64 * 64 * 50, products)  # of one run, with what is fused to them
        self.assertRegex(repr(rows), r" in \d+ kernels$")
        self.assertRegex(rows._repr_html_(), "^<table>.*MatMul.*</table>$")
        try:
            import pandas
        except ImportError:
            return
        self.assertEqual(len(pandas.DataFrame(rows)), len(rows))

    def test_verify(self):
        for device in ("cpu", "interp"):
            p = quern.compile(GRAPH, device=device, sizes={"N": 6})
            for n in (None, 1, 17):
                checks = p.verify(GRAPH, sizes=n and {"N": n}, seed=n or 0)
                self.assertTrue(checks and checks.ok, checks)
                self.assertEqual([(c.output, c.count) for c in checks], [("y", 3 * (n or 6)), ("z", 6 * (n or 6))])
            self.assertRegex(repr(checks), "^'y' is right: off by ")
            self.assertIn("<td>y</td>", checks._repr_html_())
        with self.assertRaisesRegex(ValueError, r"verify\(model\)"):
            p.verify()
        self.assertFalse(p.verify(GRAPH.replace(b"[2]", b"[3]")))
        self.assertRegex(repr(p.verify(GRAPH.replace(b"[2]", b"[3]"))), "'y' is WRONG in 18 of 18 elements")
        with tempfile.TemporaryDirectory() as d:
            with open(f"{d}/net.graph", "wb") as f:
                f.write(GRAPH)
            p = quern.compile(f"{d}/net.graph", assume={"N": 4})
            self.assertTrue(p.verify())
            p.save(f"{d}/net.dnx")
            self.assertTrue(quern.load(f"{d}/net.dnx").verify(f"{d}/net.graph", sizes={"N": 4}))
            with self.assertRaisesRegex(ValueError, "not known"):
                quern.load(f"{d}/net.dnx").verify()

    def test_explain(self):
        p = quern.compile(MATMULS)
        self.assertIn("MatMul", p.explain())
        with tempfile.TemporaryDirectory() as d:
            p.save(f"{d}/net.dnx")
            self.assertEqual(quern.load(f"{d}/net.dnx").explain(), p.explain())


class Arrays(unittest.TestCase):
    def test_given(self):
        p, (x, s) = quern.compile(GRAPH), case(2)
        y, z = np.zeros((5, 3), "f"), np.zeros((10, 3), "f")
        p.run([x, s], [y, z])
        np.testing.assert_allclose(y, x * s + 2, rtol=1e-6)
        np.testing.assert_array_equal(z, np.concatenate([x, x]))
        p.run({"s": s, "x": x[::-1]}, (y, z))
        np.testing.assert_allclose(y, x[::-1] * s + 2, rtol=1e-6)
        for wrong, says in (([y], "2 outputs"), ([y, z, y], "2 outputs")):
            with self.assertRaisesRegex(TypeError, says):
                p.run([x, s], wrong)
        fixed = y.copy()
        fixed.flags.writeable = False
        for wrong in (np.zeros((3, 5), "f").T, fixed, np.zeros((5, 6), "f")[:, ::2]):
            with self.assertRaisesRegex(ValueError, "output 'y' is not a dense array that can be written"):
                p.run([x, s], [wrong, z])
        for wrong in (np.zeros((6, 3), "f"), np.zeros((5, 3))):
            with self.assertRaisesRegex(quern.Error, "output 'y' has another type or shape"):
                p.run([x, s], [wrong, z])

    def test_protocols(self):
        """The same memory, whoever owns it."""
        p, (x, s) = quern.compile(GRAPH), case(3)
        want = p(x, s)[0]
        for wrap in (lambda a: Interface(a), DLPack, memoryview, lambda a: a.tolist()):
            a = _arrays.as_array(wrap(x))
            self.assertEqual(np.shares_memory(a, x), wrap(x).__class__ is not list)
        for wrap in (lambda a: Interface(a), DLPack, memoryview):
            np.testing.assert_array_equal(p(wrap(x), wrap(s))[0], want)
            np.testing.assert_array_equal(quern.Operator("Neg")(wrap(x)), -x)
        if hasattr(np, "from_dlpack"):
            y = np.from_dlpack(p(x, s)[0])
            np.testing.assert_array_equal(y, want)

    def test_devices(self):
        """Arrays that are said to be on a CUDA device never reach the CPU."""
        class Cuda:
            def __init__(self, shape=(2, 3), **more):
                self.__cuda_array_interface__ = dict(shape=shape, typestr="<f4", data=(1 << 40, False), version=3, strides=None, **more)

        a = _arrays.as_array(Cuda(stream=7))
        self.assertEqual((a.kind, a.shape, a.strides, a.data, a.is_dense, _arrays.stream_of(a.device)), (1, (2, 3), (3, 1), 1 << 40, True, 7))
        self.assertEqual(_arrays.device_name(_arrays.device_of(a)), "cuda:0")
        for run in (lambda p, x: p.run([x, Cuda((3,))], [Cuda(), Cuda((4, 3))]), lambda p, x: p(x, Cuda((3,)))):
            with self.assertRaisesRegex(ValueError, "arrays are on device 'cuda:0', and the program is for 'cpu': pass arrays in the host's memory, x.cpu.., or "
                                                    "compile or load it with device='cuda:0'"):
                run(quern.compile(GRAPH), Cuda())
        with self.assertRaisesRegex(ValueError, "input 1 lies in the host's memory, expected device 'cuda:0', as the other arrays: move it there .*, or pass all"):
            quern.Operator("Add")(Cuda(), np.ones((2, 3), "f"))
        odd = _arrays.as_array(Cuda())
        odd.is_dense = False
        with self.assertRaisesRegex(ValueError, "not dense"):
            _arrays.on_device(odd)
        with self.assertRaisesRegex(TypeError, "with a mask"):
            _arrays.as_array(Cuda(mask=1))
        with self.assertRaisesRegex(TypeError, "pass arrays for the results"):
            _arrays.empty((2,), 1, a)

        class Vulkan:
            def __dlpack__(self, **_):
                raise AssertionError

            def __dlpack_device__(self):
                return (7, 0)
        with self.assertRaisesRegex(TypeError, "DLPack's kind 7"):
            quern.Operator("Neg")(Vulkan())

    def test_capsule(self):
        """DLPack's tensors of a CUDA device: described, and given back once."""
        class DLManaged(ctypes.Structure):
            _fields_ = [("tensor", _arrays.DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]
        gone, shape = [], (ctypes.c_int64 * 2)(2, 3)
        managed = DLManaged(deleter=type(DLManaged().deleter)(gone.append))
        managed.tensor = _arrays.DLTensor(data=1 << 40, device_type=2, device_id=1, ndim=2, code=4, bits=16, lanes=1, shape=shape, byte_offset=64)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

        class Tensor:
            def __dlpack__(self, stream=None):
                return new(ctypes.addressof(managed), b"dltensor", None)

            def __dlpack_device__(self):
                return (2, 1)
        a = _arrays.as_array(Tensor())
        self.assertEqual((a.kind, a.shape, a.strides, a.data, str(a.device)), (16, (2, 3), (3, 1), (1 << 40) + 64, "cuda:1"))
        self.assertEqual(gone, [])
        del a
        gc.collect()
        self.assertEqual(gone, [ctypes.addressof(managed)])
        managed.tensor.bits = 4
        with self.assertRaisesRegex(TypeError, "type 4 with 4 bits"):
            _arrays.as_array(Tensor())


def samples(database):
    with sqlite3.connect(database) as db:
        return sum(db.execute(f"select count(*) from {t}").fetchone()[0] for (t,) in db.execute("select name from sqlite_master where type = 'table'")
                   if "sample" in t)


class Tuning(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        old = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells' jobs in the background ignore the signal
        self.addCleanup(signal.signal, signal.SIGINT, old)
        self.db = f"{folder.name}/net.db"

    def tune(self, **how):
        start = time.monotonic()
        quern.tune(MATMULS, self.db, **{"seconds": 60, **how})
        return time.monotonic() - start

    def interrupted(self, how, **options):
        """Stopped by `how` long before its time, with what was measured."""
        start = time.monotonic()
        with self.assertRaises(how) as c:
            self.tune(**options)
        self.assertLess(time.monotonic() - start, 40)
        self.assertGreater(samples(self.db), 0)
        quern.compile(MATMULS, database=self.db)
        return c.exception

    def after_samples(self, action):
        """Calls it once something is measured."""
        done = []

        def progress(event):
            if event["done"] > 1 and not done:
                done.append(action())
        return progress

    def test_interrupt(self):
        kill = self.after_samples(lambda: threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start())
        self.interrupted(KeyboardInterrupt, progress=kill)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        self.tune(seconds=0.5)  # goes on

    def test_interrupt_without_progress(self):
        quern.tune(MATMULS, self.db, seconds=2)
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        self.interrupted(KeyboardInterrupt, progress=False)

    def test_handler(self):
        """One of the caller's own, that raises or not."""
        class Own(Exception):
            pass

        def raise_it(*_):
            raise Own
        calls = []
        for handler, how in ((raise_it, Own), (lambda *_: calls.append(1), None)):
            old = signal.signal(signal.SIGINT, handler)
            try:
                if how:
                    self.interrupted(how, progress=self.after_samples(lambda: os.kill(os.getpid(), signal.SIGINT)))
                else:
                    self.tune(seconds=1, progress=self.after_samples(lambda: os.kill(os.getpid(), signal.SIGINT)))
                self.assertIs(signal.getsignal(signal.SIGINT), handler)
            finally:
                signal.signal(signal.SIGINT, old)

    def test_exception(self):
        def fail():
            raise ZeroDivisionError("from progress")
        self.assertEqual(str(self.interrupted(ZeroDivisionError, progress=self.after_samples(fail))), "from progress")

    def test_thread(self):
        """Not in the main thread, where exceptions arise in the library's callback."""
        thrown = []

        def fail():
            raise ZeroDivisionError

        def work():
            try:
                self.tune(progress=self.after_samples(fail))
            except BaseException as e:
                thrown.append(type(e))
        t = threading.Thread(target=work)
        t.start()
        t.join()
        self.assertEqual(thrown, [ZeroDivisionError])
        self.assertGreater(samples(self.db), 0)

    def test_compile(self):
        """Ctrl-C while a network is compiled, or at once."""
        old = quern._program.lib.quern_compile

        def slow(*arguments):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
            return old(*arguments)
        with mock.patch.object(quern._program.lib, "quern_compile", slow):
            with self.assertRaises(KeyboardInterrupt):
                quern.compile(MATMULS)
        quern.compile(MATMULS)


class Progress(unittest.TestCase):
    EVENT = dict(done=3, total=10, failures=1, best=1.5, seconds_left=70.0, text="a kernel")

    def test_line(self):
        out = io.StringIO()
        with mock.patch("sys.stderr", out):
            line = _progress.Line()
            line(self.EVENT)
            line(self.EVENT)  # too soon
            line.close()
        self.assertEqual(out.getvalue(), "3 of 10 done, 1.50x as fast, 1 failed, 70 s left  a kernel\n")
        out.isatty = lambda: True
        with mock.patch("sys.stderr", out):
            line = _progress.Line()
            line({**self.EVENT, "total": -1, "best": 0, "seconds_left": -1.0, "failures": 0})
            line.close()
        self.assertTrue(out.getvalue().endswith("\r\033[K3 done, measuring, ? left  a kernel\r\033[K"))

    def test_choice(self):
        nothing = io.StringIO()
        with mock.patch("sys.stderr", nothing):
            self.assertIsNone(_progress.reporter(None, "x")[0])
            self.assertIsNone(_progress.reporter(False, "x")[0])
            with mock.patch("quern._progress.tqdm_class", lambda: None):
                self.assertIsInstance(_progress.reporter(True, "x")[0], _progress.Line)
            self.assertIs(_progress.reporter(print, "x")[0], print)
            with self.assertRaisesRegex(TypeError, "progress is 3"):
                _progress.reporter(3, "x")
            nothing.isatty = lambda: True
            self.assertIsNotNone(_progress.reporter(None, "x")[0])
        shell = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=1))
        with mock.patch.dict(sys.modules, IPython=shell), mock.patch("sys.stderr", io.StringIO()):
            self.assertIsNotNone(_progress.reporter(None, "x")[0])

    def test_bar(self):
        """tqdm, and what has its methods."""
        class Bar:
            made = []

            def __init__(self, **how):
                self.n, self.total, self.said, self.closed = 0, None, "", False
                Bar.made.append(self)

            def update(self, n):
                self.n += n

            def set_postfix_str(self, text, refresh):
                self.said = text

            def close(self):
                self.closed = True
        with tempfile.TemporaryDirectory() as d:
            quern.tune(MATMULS, f"{d}/net.db", seconds=1, progress=Bar)
            mine = Bar()
            quern.tune(MATMULS, f"{d}/net.db", seconds=1, progress=mine)
        first = Bar.made[0]
        self.assertTrue(first.n > 0 and first.closed and mine.n > 0 and not mine.closed)
        self.assertRegex(first.said, "x as fast|measuring")
        tqdm = _progress.tqdm_class()
        if tqdm is None:
            self.skipTest("no tqdm")
        out = io.StringIO()
        with mock.patch("sys.stderr", out):
            report, close = _progress.reporter(True, "tuning")
            report(self.EVENT)
            close()
        self.assertIn("tuning", out.getvalue())
        self.assertIn("1.50x as fast", out.getvalue())


class Shared(unittest.TestCase):
    def test_threads(self):
        """One program in several threads, and one for each."""
        rng, wrong = random.Random(5), []
        one = quern.compile(GRAPH)

        def work(k, p):
            for i in range(30):
                x, s = case(100 * k + i, rng.randint(1, 40))
                y, z = p(x, s)
                if not (np.allclose(y, x * s + 2, rtol=1e-6, atol=1e-6) and (z[:len(x)] == x).all()):
                    wrong.append((k, i))
        for programs in ([one] * 4, [quern.compile(GRAPH) for _ in range(4)]):
            them = [threading.Thread(target=work, args=a) for a in enumerate(programs)]
            [t.start() for t in them]
            [t.join() for t in them]
        self.assertEqual(wrong, [])

    def test_interpreter_runs(self):
        """Other threads run during a call: it does not hold the interpreter's lock."""
        p, ticks, over = quern.compile(MATMULS, device="interp"), [], threading.Event()
        x = np.eye(64, dtype="f")

        def tick():
            while not over.is_set():
                ticks.append(time.perf_counter())
                time.sleep(1e-4)
        t = threading.Thread(target=tick)
        t.start()
        within = []
        for _ in range(200):  # on a busy machine the thread may not get a processor during a call
            start = time.perf_counter()
            p(x)
            end = time.perf_counter()
            within = [k for k in ticks if start < k < end]
            if len(within) > 3:
                break
        over.set()
        t.join()
        self.assertGreater(len(within), 3)

    def child(self, work):
        """The exit code of a child that does it."""
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(work() or 0)
            finally:
                os._exit(99)
        for _ in range(600):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "hangs"

    def test_fork(self):
        p, (x, s) = quern.compile(GRAPH), case()
        want = p(x, s)[0]

        def use():
            for f in (lambda: p(x, s), lambda: p.run([x, s], [x, x]), p.bench, p.profile, p.explain, lambda: p.save("/dev/null"), lambda: p.input_shapes,
                      lambda: p.verify(GRAPH), lambda: p.seconds, lambda: p.state(4)):
                try:
                    f()
                    return 1
                except RuntimeError as e:
                    if "does not survive a fork" not in str(e):
                        return 2
            if "another process" not in repr(p):
                return 3
            return 0 if np.array_equal(quern.compile(GRAPH)(x, s)[0], want) else 4
        for _ in range(3):
            self.assertEqual(self.child(use), 0)
        np.testing.assert_array_equal(p(x, s)[0], want)

    def test_fork_while_running(self):
        """Children of a process whose other threads run programs and operators, and hold their locks."""
        p, op, (x, s), over = quern.compile(GRAPH), quern.Operator("Neg"), case(), threading.Event()

        def work():
            while not over.is_set():
                p(x, s), op(x), quern.Operator("Neg")
        t = threading.Thread(target=work)
        t.start()

        def use():
            return 0 if (op(x) == -x).all() and (quern.Operator("Abs")(x) == abs(x)).all() else 1
        try:
            self.assertEqual([self.child(use) for _ in range(8)], [0] * 8)
        finally:
            over.set()
            t.join()

    def test_pickle(self):
        p = quern.compile(GRAPH)
        with self.assertRaisesRegex(TypeError, r"save\(\) it to a file"):
            pickle.dumps(p)

    def test_released(self):
        """Programs and contexts go with their last reference, without the collector of cycles."""
        gc.disable()
        try:
            closed = []
            with mock.patch.object(quern._library.Context, "close", lambda self: closed.append(1)):
                quern.compile(GRAPH)
            self.assertEqual(closed, [1])
        finally:
            gc.enable()

    def test_no_compiler(self):
        with mock.patch.dict(os.environ, PATH="/nowhere"):
            os.environ.pop("QUERN_CC", None)
            for f in (lambda: quern.tune(MATMULS, ":memory:", seconds=1), lambda: quern.compile(GRAPH.replace(b"[2]", b"[2.75]"))):
                with self.assertRaisesRegex(quern.Error, "no C compiler found: install gcc or clang, or set QUERN_CC") as c:
                    f()
                self.assertEqual(c.exception.status, "SYSTEM")

    def test_wrong_compiler(self):
        """The command in QUERN_CC cannot be run."""
        for k, command in enumerate(("/nonexistent", "no-such-compiler -O1", "/etc/passwd")):
            with mock.patch.dict(os.environ, QUERN_CC=command):
                for f in (lambda: quern.tune(MATMULS, ":memory:", seconds=1), lambda: quern.compile(GRAPH.replace(b"[2]", b"[3.%d]" % (k + 1))),
                          lambda: quern.Operator("Neg")(np.ones((k + 5, 77), "f"))):
                    says = f"cannot run '{command.split()[0]}': set QUERN_CC to the command of a C compiler, or unset it and install gcc or clang"
                    with self.assertRaisesRegex(quern.Error, says) as c:
                        f()
                    self.assertEqual(c.exception.status, "SYSTEM")

    def test_absent_device(self):
        """A driver that is not there, and a name that nothing has."""
        with mock.patch.dict(os.environ, QUERN_CUDA_LIBRARY="/nonexistent.so"):
            with self.assertRaisesRegex(quern.Error, r"no CUDA: .*nonexistent.*; install its driver, or choose a device that is there \(quern devices\)"):
                quern.compile(GRAPH, device="cuda")
        with self.assertRaisesRegex(quern.Error, r"no device matches 'vulcan'; there are: 'cpu'.*\(all: quern devices\)"):
            quern.compile(GRAPH, device="vulcan")

    def test_wrong_models(self):
        for wrong in (None, 3, ["net.onnx"], io.BytesIO(GRAPH)):
            with self.assertRaisesRegex(TypeError, "expected the path of a file or its content as bytes"):
                quern.compile(wrong)


if __name__ == "__main__":
    print(f"python {sys.version.split()[0]}, numpy {np.__version__}, {quern.library_path()}")
    unittest.main(verbosity=0)
