# SPDX-License-Identifier: Apache-2.0
#
# `compare tokens`: language models (decoders.py) beside llama.cpp and onnxruntime-genai: tokens per second of a prompt, and of the likeliest tokens
# behind it, one by one. Every engine is a process of its own (tokens.py ENGINE FOLDER THREADS ISA) that waits on a pipe between its turns; a turn
# is a whole prompt and its continuation. Engines choose their tokens themselves, each in its own way of rounding.
import json
import os
import shutil
import sys
import tempfile
import time

import numpy as np

import decoders
import isa as sets
import machine
import stats
import turns
import worker
from rows import ROOT

PROMPT, MORE, ROUNDS = 512, 128, 7
LLAMA = os.path.join(ROOT, "build/llama.cpp")


def prompt(vocabulary):
    return np.random.default_rng(3).integers(0, vocabulary - 1, PROMPT)


# --- engines, in processes of their own -----------------------------------------------------------


class Quern:
    """Two programs, for prompts and for single tokens, and a state for each, as `quern generate`."""

    def __init__(self, folder, threads, isa):
        import quern

        path, db = folder + "/model.onnx", "%s/build/rows/t%d.db" % (ROOT, threads)
        more = dict(state=True, threads=threads, isa=isa or None, database=db if os.path.exists(db) else None)
        start = time.time()
        self.whole = quern.compile(path, assume={"batch_size": 1}, sizes={"sequence_length": PROMPT, "past_sequence_length": 0}, **more)
        self.step = quern.compile(path, assume={"batch_size": 1, "sequence_length": 1}, sizes={"past_sequence_length": PROMPT + MORE // 2}, **more)
        self.notes = "compiled in %.1f s" % (time.time() - start)
        self.version = "quern"
        self.states = [p.state(PROMPT + MORE) for p in (self.whole, self.step)]

    def run(self, state, ids):
        n = len(state) + len(ids)
        return state(input_ids=np.array([ids], np.int64), attention_mask=np.ones((1, n), np.int64))[0, -1]

    def start(self, ids):
        for s in self.states:
            s.truncate(0)
        self.scores = self.run(self.states[0], ids)
        self.states[1].copy(self.states[0])

    def next(self):
        token = int(self.scores.argmax())
        self.scores = self.run(self.states[1], [token])
        return token


class LlamaCpp:
    """The library through the bindings of PyPI's llama-cpp-python, without the package around them."""

    def __init__(self, folder, threads, isa):
        import types

        os.environ["LLAMA_CPP_LIB_PATH"] = os.path.join(LLAMA, isa or "native", "bin")
        package = sys.modules["llama_cpp"] = types.ModuleType("llama_cpp")
        package.__path__ = [LLAMA + "/llama_cpp"]
        import llama_cpp.llama_cpp as c

        self.c, self.log = c, c.llama_log_callback(lambda *_: None)
        c.llama_log_set(self.log, None)
        c.llama_backend_init()
        self.model = c.llama_model_load_from_file((folder + "/model.gguf").encode(), c.llama_model_default_params())
        if not self.model:
            raise RuntimeError("model.gguf was not loaded")
        o = c.llama_context_default_params()
        o.n_ctx, o.n_batch, o.n_ubatch, o.n_threads, o.n_threads_batch = PROMPT + MORE, PROMPT, PROMPT, threads, threads
        self.context = c.llama_init_from_model(self.model, o)
        self.vocabulary = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self.model))
        self.version, self.notes = "llama.cpp", c.llama_print_system_info().decode().strip()

    def run(self, ids):
        tokens = (self.c.llama_token * len(ids))(*[int(t) for t in ids])
        if self.c.llama_decode(self.context, self.c.llama_batch_get_one(tokens, len(ids))):
            raise RuntimeError("llama_decode failed")
        self.scores = np.ctypeslib.as_array(self.c.llama_get_logits_ith(self.context, -1), (self.vocabulary,))

    def start(self, ids):
        self.c.llama_memory_clear(self.c.llama_get_memory(self.context), False)
        self.run(ids)

    def next(self):
        token = int(self.scores.argmax())
        self.run([token])
        return token


class GenAi:
    def __init__(self, folder, threads, isa):
        import onnxruntime_genai as og

        self.og = og
        c = og.Config(folder)
        c.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads, "inter_op_num_threads": 1}}}}))
        self.model = og.Model(c)
        self.version, self.notes = "onnxruntime-genai " + og.__version__, ""

    def start(self, ids):
        o = self.og.GeneratorParams(self.model)
        o.set_search_options(max_length=PROMPT + MORE + 1, min_length=PROMPT + MORE + 1, do_sample=False)
        self.generator = self.og.Generator(self.model, o)
        self.generator.append_tokens(np.array(ids, np.int32))
        self.scores = np.array(self.generator.get_output("logits")).ravel()

    def next(self):
        """The token of the scores there are; the next call computes those behind it."""
        self.generator.generate_next_token()
        return int(self.generator.get_next_tokens()[0])


ENGINES = {"quern": Quern, "llama.cpp": LlamaCpp, "onnxruntime-genai": GenAi}


def turn(e, ids, scores):
    """Seconds of the prompt and of the tokens behind it. scores: the file for those of the prompt."""
    start = time.time()
    e.start(ids)
    middle = time.time()
    if scores:
        np.save(scores, e.scores)
    again = time.time()
    tokens = [e.next() for _ in range(MORE)]
    return {"prompt": middle - start, "generation": time.time() - again, "tokens": tokens}


def serve(name, folder, threads, isa):
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    say = lambda **what: print(json.dumps(what), file=out, flush=True)
    try:
        with open(folder + "/genai_config.json") as f:
            ids = prompt(json.load(f)["model"]["vocab_size"])
        e = ENGINES[name](folder, threads, isa)
        say(version=e.version, notes=e.notes)
        for line in sys.stdin:
            say(**turn(e, ids, json.loads(line)["scores"]))
    except Exception as error:  # of any library
        say(error="%s: %s" % (type(error).__name__, str(error).splitlines()[0][:200] if str(error) else ""))


# --- measuring ------------------------------------------------------------------------------------


def start_engines(names, folder, threads, isa):
    """Those that work, after a turn of each that is not counted; failures as lines."""
    made, lines = [], []
    for name in names:
        if sets.settings(isa, name) is None:
            lines.append("%s left out: it cannot be held to %s" % (name, isa))
            continue
        try:
            e = turns.Process(name, [sys.executable, __file__, name, folder, str(threads), isa], threads, {})
            e.file = "%s/%s.npy" % (folder, name)
            e.first = e.turn(scores=e.file)
            made.append(e)
        except worker.Failed as error:
            lines.append("%s failed: %s" % (name, error))
    return made, lines


def differences(made):
    """Of the prompt's scores, relative to the largest one, from those of the first peer; and equal tokens from the first on."""
    peer = next((e for e in made if e.name == "onnxruntime-genai"), made[-1])
    want = np.load(peer.file).astype(np.float64)
    for e in made:
        e.differs = np.abs(np.load(e.file).ravel() - want.ravel()).max() / np.abs(want).max()
        same = [a == b for a, b in zip(e.first["tokens"], peer.first["tokens"])]
        e.same = (same + [False]).index(False)


def against(e, made, what):
    """Speed relative to the fastest other one, with its confidence interval."""
    peers = [p for p in made if p.name != "quern" and p is not e]
    if not peers:
        return 1.0, 1.0, 1.0
    return stats.ratio(min((p.of(what) for p in peers), key=stats.median), e.of(what))


HEAD = "  %-18s %9s  %-22s %9s %7s %7s  %-22s %8s %s" % ("", "prompt/s", "times the best peer", "tokens/s", "GB/s", "limit", "times the best peer", "differs", "same")


def lines_of(d, form, made, peak):
    for e in made:
        rate = MORE / stats.median(e.of("generation"))
        yield "  %-18s %9.1f  %.3f (%.3f to %.3f) %9.2f %7.1f %6.1f%%  %.3f (%.3f to %.3f) %8.1e %d" % (
            e.name, PROMPT / stats.median(e.of("prompt")), *against(e, made, "prompt"), rate, rate * d.bytes(form) * 1e-9, 1e-7 * rate * d.bytes(form) / peak["read"],
            *against(e, made, "generation"), e.differs, e.same)  # fmt: skip


def row(d, form, folder, threads, rounds, isa, peers, peak):
    """Lines, and the ratios of prompt and generation to the best peer if there are any."""
    decoders.write(d, form, folder)
    made, lines = start_engines(["quern"] + [p for p in ENGINES if p in peers], folder, threads, isa)
    try:
        if made:
            turns.measure(made, rounds, scores=None)
            differences(made)
            lines = [*lines_of(d, form, made, peak), *("  " + x for x in lines)]
        ours = next((e for e in made if e.name == "quern"), None)
        ratios = [against(ours, made, w)[0] for w in ("prompt", "generation")] if ours and len(made) > 1 else None
        return lines + ["  quern " + ours.facts["notes"]] * bool(ours), ratios
    except worker.Failed as error:
        return lines + ["  failed: %s" % error], None
    finally:
        for e in made:
            e.close()
        shutil.rmtree(folder)


def table(threads, only, rounds, isa, peers):
    """The table, as lines."""
    import re

    peak, all_of = machine.peak(threads, isa), []
    yield "tokens, %d thread%s: prompts of %d tokens, %d behind each; medians of %d rounds; peak %.0f GFLOP/s, limit: %.1f GB/s read" % (
        threads, "s" * (threads > 1), PROMPT, MORE, rounds, peak["gflops"], peak["read"])  # fmt: skip
    yield HEAD
    for d in decoders.DECODERS:
        for form in decoders.FORMS:
            name = "%s %s" % (d.name, form)
            if not re.search(only, name):
                continue
            yield "%s: %d layers, %.0f MB of weights per token" % (name, d.layers, d.bytes(form) * 1e-6)
            with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "build")) as folder:
                lines, ratios = row(d, form, folder + "/decoder", threads, rounds, isa, peers, peak)
            yield from lines
            all_of += [ratios] if ratios else []
    yield ""
    for k, what in enumerate(("prompts", "generation")):
        if all_of:
            r = [x[k] for x in all_of]
            yield "  %s: geometric mean %.3f times the best peer, least %.3f (goal 1.10)" % (what, stats.geomean(r), min(r))
    yield ""


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
