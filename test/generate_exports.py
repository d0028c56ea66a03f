# SPDX-License-Identifier: Apache-2.0
"""Decoders as users export them, for test/generate_exports.sh.

generate_exports.py export DIR:  small networks of transformers with random weights: by both exporters of torch.onnx.export with named caches
                                 (NAME.script.onnx, NAME.dynamo.onnx), with the names that the exporter gives (NAME.unnamed.onnx), and, where
                                 onnxruntime-genai is installed, by its model builder in f32 and int4 (NAME.genai-fp32.onnx, ...).
generate_exports.py check QUERN NET.onnx...:  the tokens of `quern generate` are those that ONNX Runtime computes greedily, token by token, and the
                                 scores of each step are the same by both, within what the products of the network may round.

The builder's int4 networks allow (accuracy_level 4) to round the left operands of products: ONNX Runtime rounds them to 8 bits, which makes scores differ
by some percent, and may change tokens; so does quern, or to 15 bits. The reference is ONNX Runtime without that rounding (accuracy_level 1).
"""
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np

PROMPT = [7, 3, 200, 11, 45, 3, 90, 17, 121]
STEPS = 24
VOCABULARY = 256
HEAD = 16
DISTINCT = 3  # tokens of a continuation, at least


def small(cls, **more):
    """A small network of a class of transformers; more: what its configuration has that a Llama's has not, or other values."""
    import torch
    import transformers as t

    shape = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=HEAD,
                 max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False, attn_implementation="sdpa")
    net = getattr(t, cls)
    config = net.config_class(**{k: v for k, v in (shape | more).items() if v is not None})
    m = net(config).eval()
    with torch.no_grad():
        for p in m.parameters():  # scores that differ clearly between tokens
            if p.dim() > 1:
                p.mul_(4)
            else:
                p.add_(0.1 * torch.randn_like(p))
    return m


# Name: class, and what is not as in a Llama. Sliding windows are shorter than prompts; experts are exported as products of all tokens.
EAGER = dict(attn_implementation="eager")  # those without another
NETWORKS = {
    "llama": ("LlamaForCausalLM", {}),
    "qwen2": ("Qwen2ForCausalLM", dict(tie_word_embeddings=True)),
    "gpt2": ("GPT2LMHeadModel", dict(n_positions=128, n_embd=64, n_layer=2, n_head=4, tie_word_embeddings=False)),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "mistral": ("MistralForCausalLM", dict(sliding_window=8)),
    "mixtral": ("MixtralForCausalLM", dict(experts_implementation="batched_mm", num_local_experts=4, num_experts_per_tok=2)),
    "gemma": ("GemmaForCausalLM", {}),
    "gemma2": ("Gemma2ForCausalLM", dict(EAGER, sliding_window=8, query_pre_attn_scalar=HEAD)),
    "gemma3": ("Gemma3ForCausalLM", dict(sliding_window=8, query_pre_attn_scalar=HEAD)),
    "phi": ("PhiForCausalLM", dict(partial_rotary_factor=0.5)),
    "phi3": ("Phi3ForCausalLM", dict(sliding_window=None)),
    "neox": ("GPTNeoXForCausalLM", dict(rotary_pct=0.25)),
    "neo": ("GPTNeoForCausalLM", dict(EAGER, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=8)),
    "gptj": ("GPTJForCausalLM", dict(n_positions=128, n_embd=64, n_layer=2, n_head=4, rotary_dim=8)),
    "codegen": ("CodeGenForCausalLM", dict(n_positions=128, n_ctx=128, n_embd=64, n_layer=2, n_head=4, rotary_dim=8)),
    "opt": ("OPTForCausalLM", dict(ffn_dim=128, word_embed_proj_dim=64)),
    "bloom": ("BloomForCausalLM", dict(EAGER, n_layer=2, n_head=4)),
    "falcon": ("FalconForCausalLM", dict(head_dim=None, multi_query=True, new_decoder_architecture=False, parallel_attn=True)),
    "mpt": ("MptForCausalLM", dict(EAGER, d_model=64, n_heads=4, n_layers=2, expansion_ratio=2, max_seq_len=128)),
    "starcoder2": ("Starcoder2ForCausalLM", {}),
    "stablelm": ("StableLmForCausalLM", dict(partial_rotary_factor=0.25)),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "granite": ("GraniteForCausalLM", dict(residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=0.5)),
    "cohere": ("CohereForCausalLM", {}),
    "persimmon": ("PersimmonForCausalLM", {}),
    "smollm3": ("SmolLM3ForCausalLM", {}),
    "glm": ("GlmForCausalLM", dict(partial_rotary_factor=0.5)),
    "nemotron": ("NemotronForCausalLM", {}),
    "gptoss": ("GptOssForCausalLM", dict(EAGER, experts_implementation="batched_mm", num_local_experts=4, num_experts_per_tok=2, sliding_window=8)),
    "qwen2moe": ("Qwen2MoeForCausalLM", dict(experts_implementation="batched_mm", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64)),
    "bigcode": ("GPTBigCodeForCausalLM", dict(n_positions=128, n_embd=64, n_layer=2, n_head=4)),
    "biogpt": ("BioGptForCausalLM", {}),
    "ministral": ("MinistralForCausalLM", dict(sliding_window=8)),
    "exaone4": ("Exaone4ForCausalLM", dict(sliding_window=8, sliding_window_pattern=2)),
}


def continuation(model):
    """The likeliest tokens behind the prompt."""
    import torch

    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        for _ in range(STEPS):
            ids = torch.cat([ids, model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return ids[0, len(PROMPT):].tolist()


def model(name):
    """With the first random weights by which it says several words."""
    import torch

    cls, more = NETWORKS[name]
    for seed in range(20):
        torch.manual_seed(seed)
        m = small(cls, **more)
        if len(set(continuation(m))) >= DISTINCT:
            return m
    raise RuntimeError("it says the same words with all seeds")


def cache_shapes(model):
    """Of each layer's keys and values: heads and size."""
    import torch

    with torch.no_grad():
        layers = model(input_ids=torch.tensor([[3, 4]]), use_cache=True).past_key_values.layers
    return [(x.shape[1], x.shape[3]) for layer in layers for x in (layer.keys, layer.values)]


def sample(model, batch=2, past=5, new=3):
    """Inputs of a step with a cache."""
    import torch

    ids = torch.randint(0, VOCABULARY, (batch, new))
    mask = torch.ones(batch, past + new, dtype=torch.int64)
    position = torch.arange(past, past + new).expand(batch, new).contiguous()
    caches = [torch.randn(batch, heads, past, size) for heads, size in cache_shapes(model)]
    return ids, mask, position, caches


def named(config):
    layers = range(config.num_hidden_layers)
    return [f"past_key_values.{i}.{x}" for i in layers for x in ("key", "value")], [f"present.{i}.{x}" for i in layers for x in ("key", "value")]


def with_caches(model):
    """The model as a function of tensors: its caches one by one."""
    import torch
    from transformers import DynamicCache

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, position_ids, *past):
            pairs = [(past[i], past[i + 1]) for i in range(0, len(past), 2)]
            out = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=DynamicCache(pairs), use_cache=True)
            return (out.logits, *[x for layer in out.past_key_values.layers for x in (layer.keys, layer.values)])

    return Step().eval()


def export_script(model, path):
    import torch

    past, present = named(model.config)
    axes = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "total"}, "position_ids": {0: "batch", 1: "sequence"},
            "logits": {0: "batch", 1: "sequence"}}
    axes |= {n: {0: "batch", 2: "past"} for n in past} | {n: {0: "batch", 2: "total"} for n in present}
    ids, mask, position, caches = sample(model)
    torch.onnx.export(with_caches(model), (ids, mask, position, *caches), path, input_names=["input_ids", "attention_mask", "position_ids", *past],
                      output_names=["logits", *present], dynamic_axes=axes, dynamo=False, opset_version=17)


def dynamo_shapes(n):
    from torch.export import Dim

    batch, new, past, total = (Dim.DYNAMIC,) * 4
    return {0: batch, 1: new}, {0: batch, 1: total}, {0: batch, 1: new}, [{0: batch, 2: past}] * n


def export_dynamo(model, path):
    import torch

    past, present = named(model.config)
    ids, mask, position, caches = sample(model)
    i, m, p, c = dynamo_shapes(len(caches))
    torch.onnx.export(with_caches(model), (ids, mask, position, *caches), path, input_names=["input_ids", "attention_mask", "position_ids", *past],
                      output_names=["logits", *present], dynamic_shapes=(i, m, p, tuple(c)), dynamo=True, external_data=False)


def export_unnamed(model, path):
    """The model itself, whose cache is an object: the exporter names its tensors."""
    import torch
    from transformers import DynamicCache
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    register_dynamic_cache_export_support()
    ids, mask, position, caches = sample(model)
    i, m, p, c = dynamo_shapes(len(caches))
    cache = DynamicCache([(caches[k], caches[k + 1]) for k in range(0, len(caches), 2)])
    torch.onnx.export(model, (), path, kwargs=dict(input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True),
                      dynamic_shapes=dict(input_ids=i, attention_mask=m, position_ids=p, past_key_values=[c[::2], c[1::2]], use_cache=None), dynamo=True,
                      external_data=False)


def export_transformers(model, path):
    """By transformers' own exporter."""
    import onnx_ir
    from transformers import DynamicCache
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    ids, mask, position, caches = sample(model)
    cache = DynamicCache([(caches[k], caches[k + 1]) for k in range(0, len(caches), 2)])
    out = OnnxExporter().export(model, dict(input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True),
                                config=OnnxConfig(dynamic=True))
    onnx_ir.save(out.program, path)


def export_genai(model, path, precision):
    import tokenizers
    import transformers

    folder = path + ".from"
    model.save_pretrained(folder)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(i): i for i in range(VOCABULARY)}, unk_token="0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="1").save_pretrained(folder)
    out = path + ".to"
    done = subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", folder, "-o", out, "-p", precision, "-e", "cpu", "-c", path + ".cache"],
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("the model builder: " + "\n".join((done.stdout + done.stderr).splitlines()[-6:]))
    import onnx

    onnx.save(onnx.load(out + "/model.onnx"), path)
    for d in (folder, out, path + ".cache"):
        shutil.rmtree(d, ignore_errors=True)


def has(module):
    import importlib.util

    return importlib.util.find_spec(module) is not None


FORMS = {"script": export_script, "dynamo": export_dynamo, "transformers": export_transformers, "unnamed": export_unnamed,
         "genai-fp32": lambda m, p: export_genai(m, p, "fp32"), "genai-int4": lambda m, p: export_genai(m, p, "int4")}


def needed(form):
    """The module that an exporter needs and that may not be there, and what installs it."""
    return ("onnxruntime_genai", "onnxruntime-genai") if "genai" in form else ("transformers.exporters", "architectures") if form == "transformers" else None


def export(folder, *only):
    """Each form in a process of its own: exporters tell PyTorch of caches as objects, each in its way."""
    os.makedirs(folder, exist_ok=True)
    wrong = 0
    for form in FORMS:
        module = needed(form)
        if module and not has(module[0]):
            print(f"skipped: networks of the form {form}: no {module[0]} (bench/setup {module[1]})", flush=True)
            continue
        status = subprocess.run([sys.executable, __file__, "form", form, folder, *only]).returncode
        if status:
            wrong += 1
            print(f"{form}: the exporter's process ended with status {status}", flush=True)
    sys.exit(wrong != 0)


def has_form(name, form):
    """All by the exporters of torch.onnx.export with named caches, but those on which they fail; the first ones also by the others."""
    if form in ("script", "dynamo"):
        return (name, form) not in {("cohere", "script"), ("glm", "script"), ("mpt", "dynamo")}
    return name in (("llama", "qwen2") if "genai" in form else ("llama", "qwen2", "gpt2"))  # whose builder does not know GPT-2


def export_form(form, folder, *only):
    paths = {name: f"{folder}/{name}.{form}.onnx" for name in NETWORKS if has_form(name, form)}
    wanted = {name: path for name, path in paths.items() if not only or re.search("|".join(only), path)}
    for name in wanted:
        log = io.StringIO()
        try:
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                FORMS[form](model(name), wanted[name])
            print(f"{wanted[name]}: written", flush=True)
        except Exception as e:
            print(f"{wanted[name]}: not exported: {type(e).__name__}: {str(e)[:1500]}", flush=True)


# comparison

def role(name, shape):
    for word in ("input_ids", "attention_mask", "position_ids", "cache_position"):
        if word in name:
            return word
    return "cache" if len(shape) == 4 else "other"


LONGEST_SUM = 128  # terms of a product's element: intermediate_size


def exact(path):
    """The network without rounding of left operands, and how far scores of another program may be from its, relative to the largest. In a chain of
    products their errors add up: of f32 an element's sum may round as often as it has terms, of 8 bits (a sign and 7) its terms have been rounded."""
    import onnx

    net, products, unit = onnx.load(path), 0, LONGEST_SUM * 2.0**-24
    for node in net.graph.node:
        products += {"MatMul": 1, "Gemm": 1, "MatMulNBits": 1, "GroupQueryAttention": 2, "Attention": 2}.get(node.op_type, 0)
        for a in node.attribute:
            if a.name == "accuracy_level" and a.i == 4:
                a.i, unit = 1, 2.0**-8
    return net.SerializeToString(), products * unit


def reference(net):
    """Tokens and scores of each step by ONNX Runtime; caches by the order of inputs and outputs."""
    import onnxruntime

    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads, o.log_severity_level = 1, 3
    s = onnxruntime.InferenceSession(net, o, providers=["CPUExecutionProvider"])
    inputs, outputs = s.get_inputs(), s.get_outputs()
    type_of = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
    logits = next((o.name for o in outputs if o.name == "logits"), outputs[0].name)
    present = [o.name for o in outputs if o.name != logits]
    caches = {}
    for i in inputs:
        if role(i.name, i.shape) == "cache":
            fixed = [d if isinstance(d, int) else 1 for d in i.shape]
            fixed[2] = 0
            if not isinstance(i.shape[3], int):
                fixed[3] = HEAD  # the model builder leaves it symbolic
            caches[i.name] = np.zeros(fixed, type_of[i.type])
    assert len(caches) == len(present), (list(caches), present)
    tokens, scores, past = list(PROMPT), [], 0
    for _ in range(STEPS):
        n = len(tokens) - past
        values = {"input_ids": tokens[past:], "attention_mask": [1] * len(tokens), "position_ids": range(past, len(tokens)), "cache_position": range(past, len(tokens))}
        feed = {i.name: np.array([list(values[role(i.name, i.shape)])], type_of[i.type]) for i in inputs if i.name not in caches}
        out = dict(zip([logits, *present], s.run([logits, *present], feed | caches)))
        scores.append(out[logits][0, -1].astype(np.float32))
        past = len(tokens)
        tokens.append(int(scores[-1].argmax()))
        caches = dict(zip(caches, [out[p] for p in present]))
    return tokens[len(PROMPT):], np.stack(scores)


def program_of_quern(path):
    import quern

    net = quern.compile(path, state=True)
    state = net.state(len(PROMPT) + STEPS)
    return net, state


def step(net, state, tokens):
    past = len(state)
    values = {"input_ids": tokens[past:], "attention_mask": [1] * len(tokens), "position_ids": range(past, len(tokens)), "cache_position": range(past, len(tokens))}
    feed = {n: np.array([list(values[role(n, ())])], np.int64) for n in state.inputs}
    out = state(**feed)
    return (out[0] if isinstance(out, tuple) else out)[0, -1].astype(np.float32)


def check(command, *paths):
    wrong = 0
    for path in paths:
        try:
            wrong += not check_one(command, path)
        except Exception as e:
            wrong += 1
            print(f"{path}: {type(e).__name__}: {str(e)[:600]}", flush=True)
    sys.exit(wrong != 0)


def check_one(command, path):
    net, limit = exact(path)
    tokens, scores = reference(net)
    ids = ",".join(map(str, PROMPT))
    done = subprocess.run([command, "generate", path, "--prompt-ids", ids, "--max-tokens", str(STEPS), "--json"], capture_output=True, text=True)
    if done.returncode:
        print(f"{path}: quern generate: {(done.stderr + done.stdout).strip()[:600]}", flush=True)
        return False
    got = json.loads(done.stdout.splitlines()[-1])["ids"]
    net, state = program_of_quern(path)
    most, so_far = 0.0, list(PROMPT)
    for want, token in zip(scores, tokens):
        most = max(most, float(np.abs(step(net, state, so_far) - want).max() / np.abs(want).max()))
        so_far.append(token)
    distinct = len(set(tokens))
    in_place = subprocess.run([command, "compile", path, "--state", "auto", "--no-prove", "-o", path + ".dnx"], capture_output=True, text=True)
    shown = subprocess.run([command, "show", path + ".dnx"], capture_output=True, text=True).stdout
    n_caches, n_in_place = len(re.findall(r"^\s*cache ", shown, re.M)), len(re.findall(r"^\s*cache .*in place", shown, re.M))
    ok = got == tokens and most < limit and distinct >= DISTINCT and n_caches == n_in_place > 0
    print(f"{path}: {'ok' if ok else 'WRONG'}: tokens {'same' if got == tokens else f'{got} instead of {tokens}'}, {distinct} distinct, scores differ by {most:.1e} of {limit:.1e}, "
          f"{n_in_place} of {n_caches} caches in place", flush=True)
    return ok


if __name__ == "__main__":
    {"export": export, "form": export_form, "check": check}[sys.argv[1]](*sys.argv[2:])
