# SPDX-License-Identifier: Apache-2.0
#
# `python3 bench/second_start.py [NETWORK ...] [--options JSON] [--cache FOLDER] [--later]`: torch.compile(model, backend="quern") in new processes: seconds
# from the model, which exists, to its first results, in eager PyTorch, in the first process that compiles it (with an empty cache) and in later ones, which
# take turns with eager ones (the median of ROUNDS by "all"). One thread; files are in the page cache. Results: bench/results/second_start.txt.
#
# "compile" is torch.compile(...) itself, "read" what is read of earlier processes, "program" how long programs take to be there, "call" the first call, which
# contains these two and the run itself, "next" the second call, "all" is compile + call, "more" the difference to eager PyTorch's. The first process' call
# contains PyTorch's compiler, the exporter, and comparisons with PyTorch. Each process compares its results with eager PyTorch's.
#
# --cache keeps the cache in a folder; --later leaves out the first process there.
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

AGREE = 2e-3
ROUNDS = 3
PARTS = ("compile", "read", "program", "call", "next", "all")


def bert(**size):
    import torch
    import transformers

    net = transformers.BertModel(transformers.BertConfig(**size))
    return net, {"input_ids": torch.randint(3, 1000, (1, 128))}


def gpt2():
    import torch
    import transformers

    net = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    return net, {"input_ids": torch.randint(3, 1000, (1, 64)), "use_cache": False}


def resnet50():
    import torch
    import torchvision

    return torchvision.models.resnet50(weights=None), {"x": torch.randn(1, 3, 224, 224)}


NETWORKS = {
    "bert-base": bert,
    "bert-large": lambda: bert(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
    "resnet50": resnet50,
    "gpt2": gpt2,
}


# --- one process ----------------------------------------------------------------------------------


def child(name, engine, options):
    """In a new process: prints seconds by part, as JSON."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    net, x = NETWORKS[name]()
    net.eval()
    spent = {}
    if engine == "quern":
        import quern.torch

        count(spent)
    with torch.no_grad():
        a = time.perf_counter()
        f = torch.compile(net, backend="quern", options=options) if engine == "quern" else net
        b = time.perf_counter()
        y = first(f(**x))
        c = time.perf_counter()
        f(**x)
        d = time.perf_counter()
        want = first(net(**x))
    assert (y - want).abs().max() <= AGREE * want.abs().max(), (y - want).abs().max()
    print(json.dumps({"compile": b - a, **spent, "call": c - b, "next": d - c, "all": c - a}))


def first(y):
    return y if not hasattr(y, "keys") else y[next(iter(y.keys()))]


def count(spent):
    """Lets parts of a call add up their seconds."""
    from quern import _piece, _warm_start

    def timed(owner, name, part):
        usual = getattr(owner, name)

        def call(*args, **named):
            start = time.perf_counter()
            try:
                return usual(*args, **named)
            finally:
                spent[part] = spent.get(part, 0) + time.perf_counter() - start

        setattr(owner, name, call)

    timed(_piece.Piece, "start", "program")
    if _warm_start.package_class():
        timed(_warm_start.package_class(), "read", "read")


# --- all of them ----------------------------------------------------------------------------------


def run(name, engine, cache, options):
    env = {**os.environ, "XDG_CACHE_HOME": cache, "OMP_NUM_THREADS": "1", "QUERN_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor")}
    p = subprocess.run([sys.executable, "-W", "ignore", __file__, "--child", name, engine, options], env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(p.stdout.splitlines()[-1])


def median(rows):
    return sorted(rows, key=lambda r: r["all"])[len(rows) // 2]


def show(what, row, more=None):
    cells = "".join(f"{row[k]:9.3f}" if k in row else f"{'':9}" for k in PARTS)
    print(f"  {what:14}{cells}" + (f"{more:9.3f}" if more is not None else ""), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    p.add_argument("--options", default="{}")
    p.add_argument("--cache")
    p.add_argument("--later", action="store_true")
    o = p.parse_args()
    print(f"{'':16}" + "".join(f"{k:>9}" for k in (*PARTS, "more")))
    for name in o.networks or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            cache = o.cache or folder
            print(name)
            if not o.later:
                show("first process", run(name, "quern", cache, o.options))
            pairs = [(run(name, "eager", cache, o.options), run(name, "quern", cache, o.options)) for _ in range(ROUNDS)]
            eager, later = (median(rows) for rows in zip(*pairs))
            show("later ones", later, later["all"] - eager["all"])
            show("eager", eager)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
    else:
        main()
