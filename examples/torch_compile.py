#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# torch_compile.py [THREADS]: milliseconds of ResNet-50 and BERT (base, 128 tokens), with random weights, in eager PyTorch, by torch.compile's own back end
# (inductor) and by quern's; medians of runs in turn. Needs: pip install torch torchvision transformers onnx onnxscript quern
import sys
import time

import torch
import torchvision
import transformers

ROUNDS = 15


def networks():
    yield "ResNet-50", torchvision.models.resnet50(weights=None), torch.randn(1, 3, 224, 224)
    yield "BERT", transformers.BertModel(transformers.BertConfig()), torch.randint(0, 30000, (1, 128))


def milliseconds(run, x):
    start = time.perf_counter()
    run(x)
    return 1e3 * (time.perf_counter() - start)


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for name, net, x in networks():
        net.eval()
        ways = {"eager": net, "inductor": torch.compile(net), "quern": torch.compile(net, backend="quern")}
        times = {way: [] for way in ways}
        with torch.no_grad():
            for run in ways.values():  # compiles
                run(x), run(x)
            for _ in range(ROUNDS):
                for way, run in ways.items():
                    times[way].append(milliseconds(run, x))
        print(name + ": " + ", ".join("%s %.1f ms" % (way, sorted(t)[ROUNDS // 2]) for way, t in times.items()), flush=True)


if __name__ == "__main__":
    main()
