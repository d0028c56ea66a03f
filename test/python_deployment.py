#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# Deployments in Python: results of calls, futures, coroutines and requests, lists, callbacks, lifetimes, errors. The deployment is made by the command.
import asyncio
import gc
import json
import os
import subprocess
import tempfile
import threading
import unittest
import xml.etree.ElementTree

import numpy as np

import quern

GRAPH = """graph {
  input %x: f32[N,3]
  const %two: f32[1] = [2]
  %r: f32[N,3] = Relu(%x)
  %y: f32[N,3] = Mul(%r, %two)
  output %r
  output %y
}"""


def command():
    library = os.path.dirname(quern.library_path())
    for path in (os.environ.get("QUERN_COMMAND", ""), os.path.join(library, "quern"), os.path.join(library, "..", "bin", "quern")):
        if os.path.isfile(path):
            return path
    raise unittest.SkipTest("no command quern beside the library")


class Deployments(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.dir.name, "net")
        net, alloc = os.path.join(cls.dir.name, "net.graph"), os.path.join(cls.dir.name, "alloc.json")
        with open(net, "w") as f:
            f.write(GRAPH)
        with open(alloc, "w") as f:
            json.dump({"relu_1": "X64:0", "mul_3": "X64:1"}, f)
        done = subprocess.run([command(), "deploy", net, "--alloc", alloc, "-o", cls.dir.name + "/out", "--name", "net"], capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(done.stderr)
        cls.path = os.path.join(cls.dir.name, "out", "net")

    @classmethod
    def tearDownClass(cls):
        cls.dir.cleanup()

    def check(self, x, results):
        np.testing.assert_array_equal(results[0], np.maximum(x, 0))
        np.testing.assert_array_equal(results[1], 2 * np.maximum(x, 0))

    def arrays(self, n):
        return [np.random.RandomState(k).randn(k + 1, 3).astype(np.float32) for k in range(n)]

    def test_calls(self):
        net = quern.Deployment(self.path, threads=2, profile="steps")
        self.assertEqual((net.inputs, net.outputs, net.devices), (["x"], ["r", "y"], ["X64:0", "X64:1"]))
        self.assertEqual(net.input_values[0].shape, ("N", 3))
        x = self.arrays(7)
        for a in x:
            self.check(a, net(a))
            self.check(a, net(x=a))
        futures = [net.submit(a) for a in x]
        for a, f in zip(x, futures):
            self.check(a, f.result(60))

        async def wait():
            return await asyncio.gather(*[asyncio.wrap_future(net.submit(a)) for a in x])
        for a, y in zip(x, asyncio.run(wait())):
            self.check(a, y)
        s = net.subgraphs
        self.assertEqual([x.device for x in s], ["X64:0", "X64:1"])
        self.assertTrue(all(x.state == "ready" and x.runs == 28 and x.seconds > 0 and x.operators and x.files for x in s))
        path = os.path.join(self.dir.name, "trace.json")
        net.trace(path)
        with open(path) as f:
            names = {e["name"] for e in json.load(f)["traceEvents"]}
        self.assertTrue({"ModelInit", "SubgraphExecute", "ModelExecute"} <= names)
        path = os.path.join(self.dir.name, "chart.svg")
        net.trace(path)
        bars = [x for x in xml.etree.ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}rect") if len(x)]  # with titles
        self.assertEqual(len(bars), 56)

    def test_threads(self):
        net, x, wrong = quern.Deployment(self.path), self.arrays(4), []

        def work(a):
            for _ in range(20):
                if not np.array_equal(net(a)[1], 2 * np.maximum(a, 0)):
                    wrong.append(a)
        threads = [threading.Thread(target=work, args=(a,)) for a in x]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_requests(self):
        net = quern.Deployment(self.path)
        r, x = net.request(), self.arrays(3)[2]
        r.input(0, x.shape)[:] = x
        r.start()
        self.assertTrue(r.wait(60))
        self.check(x, [r.output(0), r.output(1)])
        y = r.output(1)  # lives longer than request and deployment
        left, over = [5], threading.Event()

        def again(own, error):
            self.assertIsNone(error)
            left[0] -= 1
            own.start() if left[0] else over.set()
        r.on_done(again)
        r.start()
        self.assertTrue(over.wait(60) and r.wait(60))
        del r, net
        gc.collect()
        np.testing.assert_array_equal(y, 2 * np.maximum(x, 0))

    def test_dropped(self):
        """Whatever is dropped while it runs."""
        for _ in range(20):
            net = quern.Deployment(self.path)
            f = [net.submit(self.arrays(1)[0]) for _ in range(3)]
            r = net.request()
            r.set_input(0, self.arrays(1)[0])
            r.start()
            del net, r
            gc.collect()
            self.check(self.arrays(1)[0], f[2].result(60))

    def test_errors(self):
        net = quern.Deployment(self.path)
        x = self.arrays(1)[0]
        with self.assertRaisesRegex(TypeError, "has type float64, expected float32"):
            net(x.astype(np.float64))
        with self.assertRaisesRegex(TypeError, "no input 'z'"):
            net(z=x)
        with self.assertRaisesRegex(quern.Error, "axis 1 is 2, expected 3"):
            net(x[:, :2])
        with self.assertRaisesRegex(quern.Error, "not fixed"):
            net.request().input(0)
        with self.assertRaisesRegex(quern.Error, "was not started"):
            net.request().wait()
        with self.assertRaisesRegex(quern.Error, "no sub-graph is for device 'NVIDIA:0'"):
            quern.Deployment(self.path, devices={"NVIDIA:0": "cuda"})
        with self.assertRaisesRegex(quern.Error, "cannot open"):
            quern.Deployment("/nonexistent")
        with self.assertRaisesRegex(quern.Error, "not signed"):
            quern.Deployment(self.path, require_signature=True)
        with self.assertRaisesRegex(ValueError, "profile"):
            quern.Deployment(self.path, profile="all")
        self.check(x, net(x))  # requests that were refused are used again


if __name__ == "__main__":
    unittest.main()
