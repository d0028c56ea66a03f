# SPDX-License-Identifier: Apache-2.0
"""A simulated CUDA driver (fake_cuda.c, in QUERN_TEST_CUDA) for tests: memory, a stream, and which addresses kernels were given. It does not compute."""
import ctypes
import os
import unittest
from unittest import mock

PATH = os.environ.get("QUERN_TEST_CUDA", "")
is_there = os.path.isfile(PATH)


class Simulated(unittest.TestCase):
    def setUp(self):
        how = mock.patch.dict(os.environ, QUERN_CUDA_LIBRARY=PATH, QUERN_FAKE_CUDA="buffers=3")
        how.start()
        self.addCleanup(how.stop)
        self.cuda = ctypes.CDLL(PATH)
        self.cuda.fake_was_given.argtypes = [ctypes.c_uint64]
        self.context, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.within("cuStreamCreate", ctypes.byref(self.stream), 1)

    def call(self, name, *arguments):
        self.assertEqual(getattr(self.cuda, name)(*arguments), 0, name)

    def within(self, name, *arguments):
        """A call in the device's context."""
        outer = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(outer))
        self.call("cuCtxSetCurrent", self.context)
        self.call(name, *arguments)
        self.call("cuCtxSetCurrent", outer)

    def memory(self, size):
        """The address of so many bytes on the device."""
        at = ctypes.c_uint64()
        self.within("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return at.value
