# SPDX-License-Identifier: Apache-2.0
"""The main function of the run.py of each model: base against ours.

    run.py --n-layers 2 --tokens 128                     # sizes are options; by default the published ones
    run.py --tune 20 --export kernels.json               # tunes each product for 20 s, and registers what is faster than PyTorch
    run.py --kernels kernels.json                        # registers the kernels of a list
    run.py --collect configs                             # only collects: a configuration of each product for SimpleLocalTester.py

Without any of these, products of all sizes are served by quern's default kernels. Weights are random, and equal in both models. The exit code is 1
if the results differ.
"""
import argparse
import dataclasses

import torch
from kcg.ModelUtils import *
from kcg.TorchInjector import *


def options_of(args_type):
    p = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    p.add_argument("--device", default="0", help="number of a GPU, or 'cpu'; a GPU that is not there is the CPU")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--tokens", type=int, default=1024)
    p.add_argument("--threads", type=int, help="of PyTorch and quern on the CPU")
    p.add_argument("--baseline", choices=("torch", "triton"), default="torch")
    p.add_argument("--tune", type=float, metavar="SECONDS", help="for each product")
    p.add_argument("--kernels", metavar="FILE", help="a list of kernels to register")
    p.add_argument("--export", metavar="FILE", help="writes the registered kernels")
    p.add_argument("--collect", metavar="DIR", help="writes configurations, and does nothing else")
    p.add_argument("--rounds", type=int, default=5)
    for f in dataclasses.fields(args_type):
        p.add_argument("--" + f.name.replace("_", "-"), type=type(f.default), default=f.default)
    return p


def register(o, device, run):
    if o.kernels:
        registerPreCompiledKernelByJson(o.kernels, device)
    if o.tune:
        compile_model(device, run, seconds=o.tune)
    if not o.kernels and not o.tune:
        run()
        registerCollectedKernels()
    if o.export:
        exportPreCompiledKernels(o.export)
    OpProxy.ResetOpCallCounts()


def report(out0, t0, out1, t1):
    """Returns whether the results agree."""
    print(f"=== model run time : ours = {t1:.3f} ms, base = {t0:.3f} ms, speedup : {t0 / t1:.3f}")
    for computation, n in OpProxy.GetOpCallCountsDetailed().get("MatmulOp", {}).items():
        print(f"==== {n['calls']} calls of {computation}, {n['served']} by quern")
    is_right = bool(out0.std() > 1e-3) and torch.allclose(out0, out1, atol=1e-3, rtol=1e-3)
    n, largest = compare_with_error(out0, out1, 1e-3, 1e-3)
    print(f"===== model test {'correct' if is_right else 'error'} : {n} of {out0.numel()} elements differ, by {largest:.3g} at most")
    return is_right


def main(model_type, args_type):
    o = options_of(args_type).parse_args()
    if o.threads:
        torch.set_num_threads(o.threads)
    PathManager.init()
    device = int(o.device) if o.device.isdigit() else o.device
    DeviceInfo.init_cuda([device])
    args = args_type(**{f.name: getattr(o, f.name) for f in dataclasses.fields(args_type)})
    args.max_seq_len = max(args.max_seq_len, o.tokens)
    torch.manual_seed(0)
    ids = torch.randint(1, args.vocab_size, (o.batch, o.tokens)).to(device)
    with torch.no_grad():
        ours = model_type(args, False).to(device).eval()
        run = run_model(ours, args, ids)
        if o.collect:
            compile_model(device, run, True, configs=o.collect)
            return 0
        register(o, device, run)
        base = model_type(args, True, o.baseline).to(device).eval()
        out0, t0 = evaluate_model_time(lambda: base(ids), o.rounds)
        out1, t1 = evaluate_model_time(run, o.rounds)
    return 0 if report(out0, t0, out1, t1) else 1
