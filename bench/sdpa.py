#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# sdpa.py: PyTorch's scaled_dot_product_attention on the first CUDA device, by the fastest of its
# backends (FlashAttention, cuDNN, memory-efficient), timed by the device's events; a process of its
# own, controlled by lines of JSON on standard input (bench/worker.py). A sample is a number of
# consecutive runs that take SAMPLE seconds.
import math
import time

import serve

SAMPLE, WARM, MOST = 2e-3, 0.05, 1000  # seconds of a sample, of warming up; runs of a sample
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")


class Sdpa:
    def __init__(self):
        import torch
        import torch.nn.attention

        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch has no CUDA device")
        self.torch = torch
        self.types = {"fp16": torch.half, "bf16": torch.bfloat16, "fp32": torch.float}

    def hello(self, ask):
        t = self.torch
        return {"version": "PyTorch %s, CUDA %s, cuDNN %s" % (t.__version__, t.version.cuda, t.backends.cudnn.version())}

    def seconds(self, run, count):
        """Seconds of a run: the mean of count consecutive ones."""
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        for _ in range(count):
            run()
        events[1].record()
        self.torch.cuda.synchronize()
        return events[0].elapsed_time(events[1]) * 1e-3 / count

    def samples(self, run, n):
        self.seconds(run, 1)
        count = max(1, min(MOST, math.ceil(SAMPLE / max(self.seconds(run, 1), 1e-7))))
        end = time.perf_counter() + WARM
        while time.perf_counter() < end:
            self.seconds(run, count)
        return [self.seconds(run, count) for _ in range(n)]

    def time(self, ask):
        """Seconds of one run, per sample, and the backend."""
        t, found, why = self.torch, {}, ""
        options = {"device": "cuda", "dtype": self.types[ask["type"]]}
        q, k, v = (t.randn(1, ask["heads"], ask["queries"], ask["size"], **options) for _ in range(3))
        for name in BACKENDS:
            backend = getattr(t.nn.attention.SDPBackend, name, None)
            if backend is None:
                continue
            try:
                with t.inference_mode(), t.nn.attention.sdpa_kernel(backend):
                    run = lambda: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=ask["causal"])
                    found[name] = self.samples(run, ask["samples"])
            except RuntimeError as e:  # the backend does not take it
                why = why or str(e)
        if not found:
            raise RuntimeError(why or "no backend")
        best = min(found, key=lambda name: sorted(found[name])[len(found[name]) // 2])
        return {"seconds": found[best], "backend": best}


if __name__ == "__main__":
    serve.serve(Sdpa)
