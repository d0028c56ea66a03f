# SPDX-License-Identifier: Apache-2.0
"""PyTorch on a CUDA device for tests of torch.compile(backend="quern"): a real one (RealTorch), or a simulated one that computes (SimulatedTorch).

A tensor whose memory the simulated driver (python_cuda.py) has handed out says that it is on device 'cuda'; so do the imaginary tensors of PyTorch's compiler
that stand for it. Operators that PyTorch runs on such tensors run on the CPU, and their results are moved to that memory (Operators). The driver records what
kernels get and does not compute; so every program for it has a twin for the CPU, which then computes the same results in the same memory (Twins).
"""
import bisect
import contextlib
import ctypes
import functools
import types
import unittest
from unittest import mock

import python_cuda

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from quern import _device
from quern._library import CompileOpts, Error, lib

TensorBase = torch._C.TensorBase


def extent(t):
    """Elements from the first to the last one in memory, 1 at least."""
    return max(1, sum((d - 1) * s for d, s in zip(t.shape, t.stride())) + 1)


class Memory:
    """Memory of the device, never released. allocate: size -> address."""

    def __init__(self, allocate, device):
        self.allocate, self.device, self.starts, self.ends = allocate, device, [], []

    def has(self, t):
        """Whether a tensor is there. Imaginary ones are nowhere."""
        if isinstance(t, torch._subclasses.FakeTensor):
            return False
        try:
            at = t.data_ptr()
        except RuntimeError:
            return False
        k = bisect.bisect_right(self.starts, at) - 1
        return k >= 0 and at < self.ends[k]

    def add(self, at, size):
        k = bisect.bisect(self.starts, at)
        self.starts.insert(k, at)
        self.ends.insert(k, at + size)

    def put(self, t, offset=0):
        """A copy of a tensor there, with the same strides, `offset` elements behind an aligned address; a parameter if it is one."""
        if t.layout != torch.strided or t.is_meta:
            return t
        size = (extent(t) + offset) * t.element_size()
        at = self.allocate(size)
        self.add(at, size)
        flat = torch.frombuffer((ctypes.c_char * size).from_address(at), dtype=torch.uint8).untyped_storage()
        y = torch.empty(0, dtype=t.dtype)
        with torch.no_grad():
            y.set_(flat, offset, t.shape, t.stride())
            if t.numel():
                y.copy_(t.detach())
        return torch.nn.Parameter(y, t.requires_grad) if isinstance(t, torch.nn.Parameter) else y


class Operators(TorchDispatchMode):
    """PyTorch's operators on the device. log: their names."""

    def __init__(self, memory):
        super().__init__()
        self.memory, self.log = memory, []

    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        named, has = dict(kwargs or {}), self.memory.has
        place = named.get("device")
        given = [t for t in tree_leaves((args, named)) if isinstance(t, torch.Tensor)]
        if any(isinstance(t, torch._subclasses.FakeTensor) for t in given) or place is not None and torch.device(place).type not in ("cpu", "cuda"):
            return function(*args, **named)
        is_there = any(map(has, given)) if place is None else torch.device(place).type == "cuda"
        if place is not None:
            named["device"] = "cpu"
        self.log.append(str(function))
        results = function(*args, **named)
        if function._schema.is_mutable:
            return results
        return tree_map(lambda t: self.memory.put(t) if is_there and isinstance(t, torch.Tensor) and not has(t) else t, results)


class Twins:
    """Programs for the device by programs for the CPU. log: (program, addresses of inputs, of outputs, stream) of each run; is_right: they compute."""

    def __init__(self):
        self.of, self.log, self.is_right, self.targets = {}, [], True, []
        self.compile, self.close, self.enqueue = lib.quern_compile, lib.quern_program_close, lib.quern_enqueue

    def quern_compile(self, model, db, options, out):
        status = self.compile(model, db, options, out)
        device = options._obj.device
        if status == 0 and device and device.startswith(b"cuda"):
            self.targets.append((device, options._obj.threads))
            twin = ctypes.c_void_p()
            if self.compile(model, None, ctypes.byref(CompileOpts(threads=1)), ctypes.byref(twin)):
                raise Error("no twin")
            self.of[out._obj.value] = twin
        return status

    def quern_program_close(self, program):
        twin = self.of.pop(getattr(program, "value", program), None)
        if twin:
            self.close(twin)
        self.close(program)

    def quern_enqueue(self, program, x, n, y, m, stream):
        status, twin = self.enqueue(program, x, n, y, m, stream), self.of.get(program.value)
        if status == 0 and twin:
            self.log.append((program.value, [a.data for a in x[:n]], [a.data for a in y[:m]], stream))
            if self.is_right and self.enqueue(twin, x, n, y, m, None):
                raise Error("the twin failed")
        return status


class RealTorch(unittest.TestCase):
    """What tests use of either. index: of the device; operators: a context for what PyTorch runs there outside of compiled models."""

    index, operators = 0, contextlib.nullcontext()

    def put(self, *some, offset=0):
        """Tensors or modules on the device, but for modules with `stays = True`; a tensor with its strides, `offset` elements behind an aligned address."""
        moved = [t if not isinstance(t, (torch.Tensor, torch.nn.Module)) else self.put_module(t) if isinstance(t, torch.nn.Module) else self.put_tensor(t, offset)
                 for t in some]
        return moved[0] if len(moved) == 1 else moved

    def put_module(self, net):
        for m in net.modules():
            for some in (m._parameters, m._buffers) if not getattr(m, "stays", False) else ():
                for name, t in some.items():
                    if t is not None:
                        some[name] = self.put_tensor(t, 0)
        return net

    def put_tensor(self, t, offset):
        with torch.no_grad():
            room = torch.empty(extent(t) + offset, dtype=t.dtype, device=f"cuda:{self.index}")
            y = room.as_strided(t.shape, t.stride(), offset).copy_(t)
        return torch.nn.Parameter(y, t.requires_grad) if isinstance(t, torch.nn.Parameter) else y

    def host(self, t):
        """A tensor's content in the host's memory."""
        return t.detach().cpu()

    def backend(self, is_traced_on_cpu=False, **how):
        """quern's, for torch.compile. is_traced_on_cpu: see SimulatedTorch."""
        from quern import _dynamo

        def backend(gm, example_inputs):
            return _dynamo.backend(gm, example_inputs, **how)
        return backend

    def capture(self, f, x):
        """What f(x) gives if it is recorded for a CUDA graph, which then runs."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = f(x)
        graph.replay()
        return y


class SimulatedTorch(python_cuda.Simulated, RealTorch):
    """Models run within `with self.operators`."""

    def setUp(self):
        super().setUp()
        self.memory_of_torch = Memory(self.allocated, torch.device("cuda", self.index))
        self.operators, self.twins, self.waits, self.is_capturing = Operators(self.memory_of_torch), Twins(), [], False
        has, usual_cpu, place = self.memory_of_torch.has, TensorBase.cpu, self.memory_of_torch.device
        probe = _device.probe

        def within(device):
            with self.operators:
                return probe(device)
        self.is_seen = True
        tensor = dict(device=property(lambda t: place if self.is_seen and has(t) else TensorBase.device.__get__(t)),
                      is_cuda=property(lambda t: True if self.is_seen and has(t) else TensorBase.is_cuda.__get__(t)),
                      cpu=lambda t, *a, **k: self.host(t) if has(t) else usual_cpu(t, *a, **k))
        cuda = dict(_lazy_init=lambda: None, current_stream=lambda device=None: types.SimpleNamespace(cuda_stream=self.stream.value),
                    synchronize=self.waits.append, is_current_stream_capturing=lambda: self.is_capturing, empty_cache=lambda: None,
                    get_rng_state=lambda device: self.waits.append(("rng", device)) or torch.zeros(1), set_rng_state=lambda state, device: None)
        environment = {"QUERN_FAKE_CUDA": f"memory=4096 devices={self.index + 1} at={self.index}"}
        for how in (*(mock.patch.object(torch.Tensor, n, f, create=True) for n, f in tensor.items()),
                    *(mock.patch.object(torch.cuda, n, f) for n, f in cuda.items()),
                    *(mock.patch.object(lib, n, getattr(self.twins, n)) for n in ("quern_compile", "quern_program_close", "quern_enqueue")),
                    mock.patch.dict("os.environ", environment), mock.patch.object(_device, "probe", within),
                    mock.patch.object(_device, "measure", lambda device, fingerprint: None)):
            how.start()
            self.addCleanup(how.stop)
        _device.found.cache_clear()
        self.addCleanup(_device.found.cache_clear)

    def allocated(self, size):
        at = ctypes.c_uint64(self.memory(size))
        self.within("cuMemsetD8Async", at, 0, ctypes.c_size_t(size), self.stream)
        return at.value

    def put_tensor(self, t, offset):
        return self.memory_of_torch.put(t, offset)

    def capture(self, f, x):
        self.is_capturing = True
        try:
            return f(x)
        finally:
            self.is_capturing = False

    def host(self, t):
        with _disable_current_modes(), torch.no_grad():
            return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t)

    def backend(self, is_traced_on_cpu=False, **how):
        """is_traced_on_cpu: graphs get the device after they were traced, since PyTorch needs a real one to record gradients."""
        from quern import _dynamo
        make = _dynamo.Graph

        def graph(gm, *args):
            self.move_graph(gm)
            with self.seen(True):
                return make(gm, *args)

        if is_traced_on_cpu:
            how_made = mock.patch.object(_dynamo, "Graph", graph)  # that of a backward graph, too, which is compiled when it runs first
            how_made.start()
            self.addCleanup(how_made.stop)

        def backend(gm, example_inputs):
            if is_traced_on_cpu:
                with self.seen(False):
                    for t in tree_leaves([example_inputs, [n.meta.get("example_value") for n in gm.graph.nodes]]):
                        if isinstance(t, torch._subclasses.FakeTensor):
                            t.fake_device = torch.device("cpu")
                    run = _dynamo.backend(gm, example_inputs, **how)
            else:
                run = _dynamo.backend(gm, example_inputs, **how)

            @functools.wraps(run)
            def on_device(*args):
                with self.operators:
                    return run(*args)
            return on_device
        return backend

    @contextlib.contextmanager
    def seen(self, how):
        """Whether tensors say that they are on the device."""
        usual, self.is_seen = self.is_seen, how
        try:
            yield
        finally:
            self.is_seen = usual

    def move_graph(self, gm):
        place = self.memory_of_torch.device
        for n in gm.graph.nodes:
            for t in tree_leaves(n.meta.get("val")):
                if isinstance(t, torch._subclasses.FakeTensor):
                    t.fake_device = place
            if "device" in n.kwargs:
                n.kwargs = {**n.kwargs, "device": place}
