# SPDX-License-Identifier: Apache-2.0
#
# `compare torch`: networks as modules of PyTorch (networks.py, and those below), called from Python, by torch.compile(backend="quern"), tuned and
# untuned, beside eager PyTorch, torch.compile's own back end (inductor) and OpenVINO's, and beside an ONNX Runtime session of the exported network,
# which reads and writes PyTorch's tensors in place (PyTorch has no back end for it any more). "quern onnx" is the program of that exported file, by
# quern's own package: what a graph loses on the way through torch.compile. limit: the share of the machine's limit, which is the time of the
# network's products and convolutions at the peak rate, or of reading its inputs and weights at the rate of memory, whichever is longer; Winograd's algorithm
# needs fewer operations, so more than 100 % is possible.
#
# Every engine is a process of its own (torch_compile.py ENGINE NETWORK THREADS ISA) that waits on a pipe between its turns; a turn is a number of
# consecutive calls that takes SAMPLE seconds. Processes are started one after the other, and measured in rounds of changing order.
import json
import os
import re
import subprocess
import sys
import time
import warnings

import isa as sets
import machine
import networks
import stats
import turns
import worker
from rows import ROOT

WORK = os.path.join(ROOT, "build/rows")
ROUNDS, SAMPLE = 9, 0.05
AGREE = 2e-3  # of the largest result, from eager PyTorch's
GOAL, LEAST = 1.3, 0.97


# --- networks -------------------------------------------------------------------------------------


def transformer(model, config, inputs, call):
    """A module of transformers with random weights; config: its class and arguments."""
    import transformers as tf

    return networks.wrapped(getattr(tf, model)(getattr(tf, config[0])(**config[1])), call), inputs


def ids(n, vocabulary=1000):
    import torch

    return torch.randint(3, vocabulary, (1, n), generator=torch.Generator().manual_seed(1))


def text(model, config, n=128, **size):
    import torch

    x = ids(n)
    return transformer(model, (config, size), {"ids": x, "mask": torch.ones_like(x)},
                       lambda net, i, m: net(input_ids=i, attention_mask=m).last_hidden_state)  # fmt: skip


def bert_base():
    return text("BertModel", "BertConfig")


def minilm():
    """The sizes of all-MiniLM-L6-v2."""
    return text("BertModel", "BertConfig", hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)


def t5_small():
    return text("T5EncoderModel", "T5Config")


def whisper_tiny():
    """The encoder, 30 s of sound."""
    args = dict(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, decoder_layers=1, decoder_attention_heads=6, pad_token_id=0,
                bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)  # fmt: skip
    return transformer("WhisperModel", ("WhisperConfig", args), {"x": networks.noise(1, 80, 3000)}, lambda n, x: n.encoder(x).last_hidden_state)


def clip_vision():
    return transformer("CLIPVisionModel", ("CLIPVisionConfig", {}), {"x": networks.noise(1, 3, 224, 224)}, lambda n, x: n(x).last_hidden_state)


def gpt2_token(layers=12, heads=12, size=64, past=512):
    """One token behind `past` ones, whose keys and values (layers, 2, 1, heads, past, size) are an input."""
    import transformers as tf

    def call(net, token, kept):
        cache = tf.DynamicCache()
        for k in range(layers):
            cache.update(kept[k, 0], kept[k, 1], k)
        return net(input_ids=token, past_key_values=cache).last_hidden_state

    return transformer("GPT2Model", ("GPT2Config", {}), {"token": ids(1), "kept": networks.noise(layers, 2, 1, heads, past, size)}, call)


HERE = {f.__name__.replace("_", "-"): f for f in (bert_base, minilm, t5_small, whisper_tiny, clip_vision, gpt2_token)}
# Those of a run without --only.
NAMES = """resnet18 resnet50 vgg11_bn densenet121 googlenet inception_v3 squeezenet1_1 mobilenet_v2 mobilenet_v3_large shufflenet_v2_x1_0
efficientnet_b0 regnet_y_400mf convnext_tiny swin_t vit_b_16 unet dcgan super-resolution mlp bert-base minilm distilbert gpt2 gpt2-token llama
t5-small whisper-tiny clip-vision""".split()
ALL = [*networks.NAMES, *HERE]


def build(name):
    """The module in evaluation mode, and its inputs by name."""
    import torch

    if name in HERE:
        torch.manual_seed(0)
        net, inputs = HERE[name]()
    else:
        net, inputs = networks.build(name)
    networks.draw_zeros(net)
    return net.eval(), inputs


# --- engines, in processes of their own -----------------------------------------------------------


def eager(net, o):
    return net


def inductor(net, o):
    import torch
    from torch._inductor import config

    if o["isa"] and sets.is_beyond(o["isa"]):
        config.cpp.simdlen = 256
    return torch.compile(net)


def openvino(net, o):
    import openvino.torch  # noqa: F401
    import torch

    config = {"INFERENCE_NUM_THREADS": str(o["threads"]), "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    return torch.compile(net, backend="openvino", options={"device": "CPU", "config": config, "aot_autograd": True})


def onnxruntime(net, o):
    import onnxruntime as ort
    import torch

    path = exported(net, o)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = o["threads"], 1, 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    out = net(*o["inputs"].values())
    names, (result,) = list(o["inputs"]), session.get_outputs()

    def run(*args):
        io, y = session.io_binding(), torch.empty(out.shape, dtype=out.dtype)
        for i in session.get_inputs():
            x = args[names.index(i.name)]
            io.bind_input(i.name, "cpu", 0, x.numpy().dtype, tuple(x.shape), x.data_ptr())
        io.bind_output(result.name, "cpu", 0, y.numpy().dtype, tuple(y.shape), y.data_ptr())
        session.run_with_iobinding(io)
        return y

    return run


def exported(net, o):
    """The network's ONNX file, which stays."""
    path = os.path.join(WORK, "torch", o["network"] + ".onnx")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        networks.export(net, o["inputs"], path + ".part")
        os.replace(path + ".part", path)
    return path


def quern_onnx(net, o):
    import quern

    program = quern.compile(exported(net, o), threads=o["threads"], isa=o["isa"] or None)
    at = [list(o["inputs"]).index(name) for name in program.inputs]
    return lambda *args: program(*[args[k] for k in at])


def quern_backend(net, o, **more):
    import quern.torch  # noqa: F401
    import torch

    options = {"threads": o["threads"], **more}
    if o["isa"]:
        options["isa"] = o["isa"]
    return torch.compile(net, backend="quern", options=options)


def quern_tuned(net, o):
    return quern_backend(net, o, mode="tune", timeout=o["tune"], database=os.path.join(WORK, "torch.t%d.db" % o["threads"]))


ENGINES = {
    "quern": quern_tuned, "quern untuned": quern_backend, "quern onnx": quern_onnx, "eager": eager, "inductor": inductor, "openvino": openvino,
    "onnxruntime": onnxruntime,
}  # fmt: skip
BACKENDS = ("eager", "inductor", "openvino")  # called like ours: with the checks of PyTorch's compiler before each call, but for eager
PEERS = (*BACKENDS, "onnxruntime")


class Server:
    """One engine with one network, loaded; answers lines of JSON."""

    def __init__(self, engine, network, threads, isa, tune):
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        net, inputs = build(network)
        o = {"network": network, "inputs": inputs, "threads": threads, "isa": isa, "tune": tune}
        self.args = list(inputs.values())
        want, start = net(*self.args), time.perf_counter()
        self.run = ENGINES[engine](net, o)
        got = self.run(*self.args)
        self.facts = {"start": time.perf_counter() - start, "differs": difference(got, want), **costs(net, self.args)}
        for _ in range(3):
            self.run(*self.args)
        self.count = max(1, round(SAMPLE / self.time(1)))

    def time(self, count):
        """Seconds of a call, the mean of so many."""
        start = time.perf_counter()
        for _ in range(count):
            self.run(*self.args)
        return (time.perf_counter() - start) / count

    def turn(self):
        self.run(*self.args)  # into the caches
        return self.time(self.count)


def costs(net, args):
    """Operations of the network's products and convolutions, and bytes of its inputs and weights without embedding tables."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        net(*args)
    weights = {p for m in net.modules() if not isinstance(m, torch.nn.Embedding) for p in m.parameters(recurse=False)}
    return {"flops": counter.get_total_flops(), "bytes": sum(t.numel() * t.element_size() for t in (*weights, *args))}


def difference(got, want):
    import torch

    got, want = torch.as_tensor(got).double(), want.double()
    if got.shape != want.shape:
        return float("inf")
    off = ((got - want).abs().max() / want.abs().max()).item()
    return off if off == off else float("inf")


def serve(engine, network, threads, isa, tune):
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    say = lambda **what: print(json.dumps(what), file=out, flush=True)
    warnings.filterwarnings("ignore")
    try:
        s = Server(engine, network, int(threads), isa, float(tune))
        say(**s.facts)
        for _ in sys.stdin:
            say(seconds=s.turn())
    except Exception as error:  # of any library
        say(error="%s: %s" % (type(error).__name__, str(error).strip().splitlines()[0][:200] if str(error).strip() else ""))


# --- measuring ------------------------------------------------------------------------------------


def engine_process(name, network, threads, isa, tune):
    args = [sys.executable, os.path.abspath(__file__), name, network, str(threads), isa, str(tune)]
    settings = sets.settings(isa, {"eager": "torch", "inductor": "torch", "quern": "torch", "quern untuned": "torch"}.get(name, name))
    if settings is None:
        raise worker.Failed("cannot be held to " + isa)
    cache = os.path.join(WORK, "torch/cache" + isa)
    paths = {"XDG_CACHE_HOME": cache, "TORCHINDUCTOR_CACHE_DIR": cache + "/inductor", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return turns.Process(name, args, threads, {**settings, **paths})


def start_engines(names, network, threads, isa, tune):
    made, lines = [], []
    for name in names:
        try:
            made.append(engine_process(name, network, threads, isa, tune))
        except worker.Failed as e:
            lines.append("%s failed: %s" % (name, e))
    return made, lines


def against(e, made, names=PEERS):
    """Speed relative to the fastest of these peers whose results are right, with its interval."""
    peers = [p for p in made if p.name in names and p is not e and p.facts["differs"] < AGREE]
    if not peers:
        return 1.0, 1.0, 1.0
    return stats.ratio(min((p.of("seconds") for p in peers), key=stats.median), e.of("seconds"))


HEAD = "  %-14s %10s  %-22s %6s  %-22s %8s %8s" % ("", "median ms", "95 %", "limit", "times the best peer", "start s", "differs")


def limit_of(e, peak):
    """Seconds that the network takes at least, by common algorithms."""
    return max(1e-9 * e.facts["flops"] / peak["gflops"], 1e-9 * e.facts["bytes"] / peak["read"])


def lines_of(made, peak):
    for e in made:
        x = e.of("seconds")
        low, high = (1e3 * v for v in stats.interval(x))
        yield "  %-14s %10.3f  %-22s %5.0f%%  %-22s %8.1f %8.1e%s" % (
            e.name, 1e3 * stats.median(x), "%.3f to %.3f" % (low, high), 100 * limit_of(e, peak) / stats.median(x), "%.3f (%.3f to %.3f)" % against(e, made),
            e.facts["start"], e.facts["differs"], "" if e.facts["differs"] < AGREE else "  WRONG")  # fmt: skip


def row(network, engines, threads, rounds, isa, tune, peak):
    """Lines, and {engine: (ratio to the best peer, to the best of BACKENDS)}. peak: of the machine, see machine.peak."""
    made, lines = start_engines(engines, network, threads, isa, tune)
    try:
        turns.measure(made, rounds)
        return [*lines_of(made, peak), *("  " + x for x in lines)], {e.name: (against(e, made)[0], against(e, made, BACKENDS)[0]) for e in made}
    except worker.Failed as e:
        return [*("  " + x for x in lines), "  failed: %s" % e], {}
    finally:
        for e in made:
            e.close()


def summary(found):
    """found: {network: {engine: ratios, see row()}}."""
    for ours in ("quern", "quern untuned", "quern onnx"):
        for k, (which, peers) in enumerate((("peer", PEERS), ("of eager PyTorch and back ends of its compiler", BACKENDS))):
            r = {n: x[ours][k] for n, x in found.items() if ours in x and any(p in x for p in peers)}
            if r:
                worst = min(r, key=r.get)
                yield "  %s: geometric mean %.3f times the best %s (goal %.2f), least %.3f (%s, goal %.2f); %d networks, %d under %.2f" % (
                    ours, stats.geomean(list(r.values())), which, GOAL, r[worst], worst, LEAST, len(r), sum(v < LEAST for v in r.values()), LEAST)  # fmt: skip


def table(threads, only, rounds, isa, peers, tune):
    """The table, as lines."""
    engines = ["quern", "quern untuned", "quern onnx", *(p for p in PEERS if p in peers)]
    engines = engines if tune else engines[1:]
    todo = [n for n in ALL if re.search(only, n)] if only else NAMES
    peak = machine.peak(threads, isa)
    yield "torch, %d thread%s: a call from Python, medians of %d rounds; peak %.0f GFLOP/s, %.1f GB/s read; start: seconds to the first result%s" % (
        threads, "s" * (threads > 1), rounds, peak["gflops"], peak["read"], "; quern: tuned for at most %g s per piece" % tune if tune else "")  # fmt: skip
    yield HEAD
    found = {}
    for name in todo:
        yield name
        lines, found[name] = row(name, engines, threads, rounds, isa, tune, peak)
        yield from lines
    yield ""
    yield from summary(found)
    yield ""


if __name__ == "__main__":
    serve(*sys.argv[1:6])
