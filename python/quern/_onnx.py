# SPDX-License-Identifier: Apache-2.0
"""FX graphs of ATen operators to ONNX (one operator set, OPSET), by PyTorch's own exporter (torch.onnx, with onnxscript).

The exporter decides which operators there are: `decompositions` are those that it asks for, `refusal` looks an operator up in its registry, and `to_onnx`
runs its translation. No operator is named here. The interfaces used are the exporter's internal ones (of PyTorch 2.6 and later), because its public one takes
whole networks with their weights, and takes seconds to trace them once more.
"""
from __future__ import annotations

import functools
import operator
import re
from typing import Any, Callable, NamedTuple

import torch

from . import _onnx_translations as translations
from ._cache import cache, environment
from ._device import KINDS
from ._fx import calls, is_size, replace_all, tensors_of

OPSET = 23  # the first with Attention and RMSNormalization, which need not be recognised in their parts then


class Refused(Exception):
    """An FX node that cannot be exported, and why."""

    def __init__(self, node: str | None, reason: str) -> None:
        super().__init__(reason)
        self.node, self.reason = node, reason


class Exporter(NamedTuple):
    """Modules of PyTorch's exporter, and its registry of operators."""

    core: Any
    ir_passes: Any
    fx_passes: Any
    registry: Any


@functools.cache
def exporter() -> Exporter:
    """Raises ImportError if this PyTorch has none that is known here."""
    try:
        import onnxscript  # noqa: F401
        from torch.onnx._internal.exporter import _core, _ir_passes, _registration
        from torch.onnx._internal.fx import passes
        _core._translate_fx_graph
    except (ImportError, AttributeError) as e:
        raise ImportError(f"backend 'quern' needs PyTorch 2.6 or later with its ONNX exporter (pip install onnx onnxscript): {e}") from e
    registry = _registration.ONNXRegistry.from_torchlib(opset_version=OPSET)
    translations.register(registry)
    return Exporter(_core, _ir_passes, passes, registry)


@functools.cache
def known() -> set[Any]:
    """The operators that the exporter translates, and ours (_onnx_translations.py). Their names are kept, because its modules take seconds to import."""
    names = cache.get_or_make(f"known {OPSET} {environment()}", registered).decode().split()
    return {op for op in map(translations.overload, names) if op is not None} | set(translations.operators())


def registered() -> bytes:
    """The names of the operators in the exporter's registry, a line each."""
    found = {m.fx_target for metas in exporter().registry.functions.values() for m in metas if not m.is_complex}
    return "\n".join(sorted(str(op) for op in found if isinstance(op, torch._ops.OpOverload))).encode()


@functools.cache
def decompositions() -> Any:
    """Composite operators that are decomposed while a graph is traced (the rest stays whole), and the table of all other decompositions."""
    from torch.export.exported_program import _split_decomp_table_to_cia_and_python_decomp
    from torch.onnx._internal.exporter import _decomp
    table = _decomp.create_onnx_friendly_decomposition_table(known())
    for lift in (torch.ops.aten.lift.default, torch.ops.aten.lift_fresh.default):  # by them tensors that a model makes of numbers enter a trace
        table.pop(lift, None)
    return _split_decomp_table_to_cia_and_python_decomp(table)


def whole() -> Any:
    """A context in which composite operators that the exporter knows are traced as they are."""
    from torch.export.exported_program import _override_composite_implicit_decomp
    return _override_composite_implicit_decomp(decompositions()[0])


# --- capability ---


def draws(node: torch.fx.Node) -> bool:
    """Whether an operator draws random numbers: some do only for dropout, or in training."""
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    schema = node.target._schema.arguments
    given = {a.name: node.args[k] if k < len(node.args) else node.kwargs.get(a.name, a.default_value) for k, a in enumerate(schema)}
    return not any(name in ("train", "training") and value is False or name.startswith("dropout") and value == 0 for name, value in given.items())


def made_sizes(node: torch.fx.Node) -> set[Any]:
    """Symbols of sizes of an operator's results that data decide, and no tensor that it gets has."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    def of(n: torch.fx.Node) -> set[Any]:
        return {s for t in tensors_of(n.meta.get("val")) for s in free_unbacked_symbols(t)}
    return of(node).difference(*map(of, node.all_input_nodes))


def misplaced(node: torch.fx.Node) -> str | None:
    """Why no program can compute an operator on its device; None: one can. Tensors of the CPU without axes are numbers, which may be beside those of a GPU."""
    places = {t.device for t in tensors_of(node.meta["val"])}
    places |= {t.device for n in node.all_input_nodes for t in tensors_of(n.meta.get("val")) if t.dim() or t.device.type != "cpu"}
    for p in places:
        if p.type not in KINDS:
            return f"a tensor on device '{p}'"
    if len(places) > 1:
        return f"tensors on devices {' and '.join(sorted(repr(str(p)) for p in places))}"
    if any(p.type != "cpu" for p in places) and made_sizes(node):
        return "data decide the size of its result, which the host would have to wait for"
    return None


def refusal(node: torch.fx.Node, is_composite: Callable[[Any], bool] = lambda target: False) -> str | None:
    """Why the exporter cannot translate the node; None: it can. is_composite: operators that are decomposed before."""
    if node.op != "call_function":
        return str(node.op)
    if node.target is operator.getitem:
        return refusal(node.args[0], is_composite) if isinstance(node.args[0], torch.fx.Node) else "an element of no operator"
    if not isinstance(node.target, torch._ops.OpOverload):
        return "not an operator of PyTorch"
    if is_size(node):
        return "a size"
    schema = node.target._schema
    if schema.is_mutable:
        return "writes to its arguments"
    if draws(node):
        return "draws random numbers"
    if "val" not in node.meta or not tensors_of(node.meta["val"]):
        return "no tensor as a result"
    why = misplaced(node)
    if why:
        return why
    for n in [node, *node.all_input_nodes]:
        for t in tensors_of(n.meta.get("val")):
            if t.layout != torch.strided:
                return f"a tensor with layout {t.layout}"
            if t.dtype.is_complex:
                return "complex numbers"
    return None if node.target in known() or is_composite(node.target) else "not known to PyTorch's exporter to ONNX"


# --- translation ---


def is_mixed(gm: torch.fx.GraphModule) -> bool:
    """Whether an operator has operands of different types, which PyTorch promotes by itself: tensors, or a tensor and a number; or integers, of which it makes
    floats (division, square roots)."""
    for n in calls(gm):
        if isinstance(n.target, type(operator.add)) or is_size(n):
            continue
        types = {t.dtype for a in n.all_input_nodes for t in tensors_of(a.meta.get("val"))}
        if any(t.is_floating_point for t in tensors_of(n.meta.get("val"))) and any(not t.is_floating_point for t in types):
            return True
        numbers = any(is_size(a) or isinstance(a, (int, float)) for a in n.args)
        if len(types) > 1 or numbers and (any(not t.is_floating_point for t in types) or any(is_size(a) for a in n.args)):
            return True
    return False


def keep_numbers(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Type promotion makes numbers tensors, which the exporter writes as casts of f32: beside operands of f64 they are numbers again, and exact."""
    for n in calls(gm):
        if n.target is not torch.ops.aten.scalar_tensor.default or not isinstance(n.args[0], float):
            continue
        if all(any(t.dtype == torch.float64 for a in user.args if isinstance(a, torch.fx.Node) and a is not n for t in tensors_of(a.meta.get("val")))
               for user in n.users):
            replace_all(gm.graph, n, n.args[0])
            gm.graph.erase_node(n)
    return gm


def to_onnx(gm: torch.fx.GraphModule) -> bytes:
    """The ONNX model of a graph whose nodes have meta["val"], as bytes: its inputs are the graph's arguments, weights included, its outputs are the graph's.
    Nodes are named like the FX nodes that they come from, with a number behind. Raises Refused."""
    import onnx_ir as ir
    from onnx_ir.passes.common import InlinePass
    x = exporter()
    if is_mixed(gm):
        gm = keep_numbers(x.fx_passes.InsertTypePromotion(gm).run())
    for n in gm.graph.nodes:
        n.meta["nn_module_stack"] = {}  # for names that nobody needs
        if n.op == "get_attr":
            n.meta["val"] = getattr(gm, n.target)
    model = ir.Model(ir.Graph([], [], nodes=[], name="piece"), ir_version=10, producer_name="pytorch")
    try:
        x.core._translate_fx_graph(gm.graph, model, graph_like=model.graph, owned_graphs={}, lower="at_conversion", registry=x.registry)
    except Exception as e:
        name = re.search(r"translating node %(\w+)", str(e))
        cause: BaseException = e
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise Refused(name.group(1) if name else None, f"PyTorch's exporter: {str(cause).splitlines()[0] if str(cause) else type(cause).__name__}") from e
    for k, node in enumerate(model.graph):
        fx = node.meta.get("node")
        node.name = f"{fx.name if fx is not None else 'piece'}.{k}"
    x.ir_passes.add_opset_imports(model)
    for part in (model, *model.functions.values()):
        part.opset_imports[""] = OPSET  # the exporter writes most in 18, since when meanings are the same
    if model.functions:
        model = InlinePass()(model).model
    for value in [*model.graph.inputs, *model.graph.outputs]:
        value.metadata_props.clear()
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        for out in node.outputs:
            out.metadata_props.clear()
    return bytes(ir.to_proto(model).SerializeToString())
