# SPDX-License-Identifier: Apache-2.0
"""FX graphs of ATen operators to ONNX, by PyTorch's own exporter (torch.onnx, with onnxscript).

The exporter decides which operators there are: `decompositions` are those that it asks for, `refusal` looks an operator up in its registry, and `to_onnx`
runs its translation. No operator is named here. The interfaces used are the exporter's internal ones (of PyTorch 2.6 and later), because its public one takes
whole networks with their weights, and takes seconds to trace them once more.
"""
from __future__ import annotations

import functools
import hashlib
import operator
import re
from typing import Any, Callable, Iterable, Sequence

import torch

from . import _onnx_translations
from ._cache import cache, environment
from ._device import KINDS

OPSET = 23  # the first with Attention and RMSNormalization, which need not be recognised in their parts then


class Refused(Exception):
    """An FX node that cannot be exported, and why."""

    def __init__(self, node: str | None, reason: str) -> None:
        super().__init__(reason)
        self.node, self.reason = node, reason


@functools.cache
def exporter() -> tuple[Any, Any, Any, Any]:
    """Modules of the exporter, (core, ir_passes, fx passes), and its registry of operators."""
    try:
        import onnxscript  # noqa: F401
        from torch.onnx._internal.exporter import _core, _ir_passes, _registration
        from torch.onnx._internal.fx import passes
        _core._translate_fx_graph
    except (ImportError, AttributeError) as e:
        raise ImportError(f"backend 'quern' needs PyTorch 2.6 or later with its ONNX exporter (pip install onnx onnxscript): {e}") from e
    registry = _registration.ONNXRegistry.from_torchlib(opset_version=OPSET)
    _onnx_translations.register(registry)
    return _core, _ir_passes, passes, registry


@functools.cache
def known() -> set[Any]:
    """The operators that the exporter translates, and ours (_onnx_translations.py). Their names are kept, because its modules take seconds to import."""
    key = f"known {OPSET} {environment()}"
    names = cache.get(key)
    if names is None:
        registry = exporter()[3]
        found = {m.fx_target for metas in registry.functions.values() for m in metas if not m.is_complex}
        names = "\n".join(sorted(str(op) for op in found if isinstance(op, torch._ops.OpOverload))).encode()
        cache.put(key, names)
    return {op for op in map(_onnx_translations.overload, names.decode().split()) if op is not None} | set(_onnx_translations.operators())


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


def copy_of(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph with nodes of its own, of the same names, and the same attributes."""
    graph = torch.fx.Graph()
    copied: dict[torch.fx.Node, torch.fx.Node] = {}
    graph.output(graph.graph_copy(gm.graph, copied))
    for old, new in copied.items():
        new.name, new.meta = old.name, dict(old.meta)
    return torch.fx.GraphModule(gm, graph)


def with_all_results(gm: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
    """The graph that returns every tensor that one of its operators computes, and the FX nodes of these."""
    probe = copy_of(gm)
    nodes = [n for n in probe.graph.nodes if n.op == "call_function" and isinstance(n.meta.get("val"), torch.Tensor)]
    next(n for n in probe.graph.nodes if n.op == "output").args = (tuple(nodes),)
    probe.recompile()
    return probe, nodes


# --- capability ---


def tensors_of(value: Any) -> list[torch.Tensor]:
    return [t for t in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(t, torch.Tensor)]


def is_size(node: Any) -> bool:
    """A node whose value is an integer of the host: sizes and their arithmetic, which cost nothing."""
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))


def draws(node: torch.fx.Node) -> bool:
    """Whether an operator draws random numbers: some do only for dropout, or in training."""
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    schema = node.target._schema.arguments
    given = {a.name: node.args[k] if k < len(node.args) else node.kwargs.get(a.name, a.default_value) for k, a in enumerate(schema)}
    return not any(name in ("train", "training") and value is False or name.startswith("dropout") and value == 0 for name, value in given.items())


def device_of(node: torch.fx.Node) -> torch.device | None:
    """The device that the results of an operator are on; None: it has no tensor as a result."""
    return next((t.device for t in tensors_of(node.meta.get("val"))), None)


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


# --- sizes ---


MAX_POWER = 8  # of a size, written as a product


class Unexpressed(Exception):
    pass


def emit_size(graph: torch.fx.Graph, expr: Any, where: dict[Any, Any]) -> Any:
    """Nodes that compute a sympy expression of sizes; where: expression -> (placeholder, axis) of a tensor, or the placeholder of a size."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod
    if expr.is_Integer:
        return int(expr)
    if expr in where:
        if isinstance(where[expr], torch.fx.Node):
            return where[expr]
        tensor, axis = where[expr]
        node = graph.call_function(torch.ops.aten.sym_size.int, (tensor, axis))
        node.meta["val"] = tensor.meta["val"].shape[axis]
        return node
    is_power = expr.is_Pow and expr.exp.is_Integer and 1 < expr.exp <= MAX_POWER
    factors = [expr.base] * int(expr.exp) if is_power else expr.args
    name = {sympy.Add: operator.add, sympy.Mul: operator.mul, sympy.Pow: operator.mul, FloorDiv: operator.floordiv, Mod: operator.mod,
            PythonMod: operator.mod}.get(expr.func)
    if name is None or expr.is_Pow and not is_power:
        raise Unexpressed
    result = None
    for a in factors:
        x = emit_size(graph, a, where)
        if result is None:
            result = x
            continue
        node = graph.call_function(name, (result, x))
        node.meta["val"] = name(*[v.meta["val"] if isinstance(v, torch.fx.Node) else v for v in (result, x)])
        result = node
    return result


def sizes_of(places: Iterable[torch.fx.Node]) -> dict[Any, Any]:
    """Of placeholders: expression -> (placeholder, axis) of a tensor."""
    where: dict[Any, Any] = {}
    for p in places:
        t = p.meta.get("val")
        for d, s in enumerate(t.shape if isinstance(t, torch.Tensor) else ()):
            if isinstance(s, torch.SymInt):
                where.setdefault(s.node.expr, (p, d))
    return where


def hoist_sizes(gm: torch.fx.GraphModule) -> None:
    """Computes sizes from the graph's arguments rather than from the shapes of results, so that they do not come between operators."""
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    where = sizes_of(places)
    where.update((p.meta["val"].node.expr, p) for p in places if isinstance(p.meta.get("val"), torch.SymInt))
    after = next(n for n in gm.graph.nodes if n.op != "placeholder")
    for n in [n for n in gm.graph.nodes if n.op == "call_function" and isinstance(n.meta.get("val"), torch.SymInt)]:
        expr = n.meta["val"].node.expr
        try:
            with gm.graph.inserting_before(after):
                new = emit_size(gm.graph, expr, where)
        except Unexpressed:
            continue
        if isinstance(new, torch.fx.Node):
            where.setdefault(expr, new)
        replace_all(gm.graph, n, new)
    gm.graph.eliminate_dead_code()
    gm.recompile()


def is_never_negative(size: torch.SymInt) -> bool:
    return bool(size.node.shape_env.bound_sympy(size.node.expr).lower >= 0)


def give_axis(gm: torch.fx.GraphModule, place: torch.fx.Node, before: torch.fx.Node) -> torch.fx.Node:
    """Makes an argument that is a size an empty tensor with an axis of that size, which the compiler knows by name: as a value, it would be data that the host
    has to read before it knows what it decides. Returns a node with the size."""
    size, mode = place.meta["val"], next(t.fake_mode for n in gm.graph.nodes for t in tensors_of(n.meta.get("val")))
    with mode:
        place.meta["val"] = torch.empty((size, 0), dtype=torch.uint8, device="cpu")
    with gm.graph.inserting_before(before):
        node = gm.graph.call_function(torch.ops.aten.sym_size.int, (place, 0))
    node.meta["val"] = size
    place.replace_all_uses_with(node, delete_user_cb=lambda user: user is not node)
    return node


def bind_sizes(gm: torch.fx.GraphModule) -> list[int]:
    """Computes sizes that a graph gets as arguments from its tensors' shapes, which the compiler knows by name, and removes these arguments where that is
    possible; others become tensors (give_axis). Returns the positions of the arguments that are left."""
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    where, left = sizes_of(places), []
    after = next(n for n in gm.graph.nodes if n.op != "placeholder")
    for k, p in enumerate(places):
        v = p.meta.get("val")
        if isinstance(v, torch.SymInt) or isinstance(v, int) and not isinstance(v, bool):
            try:
                with gm.graph.inserting_before(after):
                    new = emit_size(gm.graph, v.node.expr, where) if isinstance(v, torch.SymInt) else v
            except Unexpressed:
                left.append(k)
                if isinstance(v, torch.SymInt) and is_never_negative(v):
                    where[v.node.expr] = give_axis(gm, p, after)
                continue
            replace_all(gm.graph, p, new)
            gm.graph.erase_node(p)
        else:
            left.append(k)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return left


def replace_all(graph: torch.fx.Graph, node: torch.fx.Node, new: Any) -> None:
    if isinstance(new, torch.fx.Node):
        node.replace_all_uses_with(new)
        return
    for user in list(node.users):
        user.args = torch.fx.node.map_arg(user.args, lambda n: new if n is node else n)
        user.kwargs = torch.fx.node.map_arg(user.kwargs, lambda n: new if n is node else n)


def settle_sizes(gm: torch.fx.GraphModule) -> None:
    """Where an operator is given sizes of its result (view, expand), replaces those that PyTorch knows as numbers: -1, and expressions that its guards make
    constant, which nothing in the piece need say."""
    for n in gm.graph.nodes:
        if n.op != "call_function" or not isinstance(n.target, torch._ops.OpOverload) or not isinstance(n.meta.get("val"), torch.Tensor):
            continue
        names = [a.name for a in n.target._schema.arguments]
        shape = n.meta["val"].shape
        for k, given in enumerate(n.args):
            if names[k] in ("size", "shape") and isinstance(given, (tuple, list)) and len(given) == len(shape):
                known = [s if isinstance(s, int) and not (isinstance(g, int) and g >= 0) else g for g, s in zip(given, shape)]
                n.update_arg(k, known)
    gm.graph.eliminate_dead_code()
    gm.recompile()


# --- results that share memory ---


SHARES = "a view of another result's memory"


def viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node whose memory an operator's result is in; None: the result is not a view, as far as the operator says."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return None
    if node.target is operator.getitem:
        return node.args[0] if viewed(node.args[0]) else None
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    schema = node.target._schema
    return node.args[0] if not schema.is_mutable and any(r.alias_info for r in schema.returns) and schema.arguments[0].alias_info else None


def views_of(node: torch.fx.Node) -> tuple[torch.fx.Node, list[torch.fx.Node]]:
    """(the node whose memory it is in, views that lead from that to it)."""
    chain: list[torch.fx.Node] = []
    while viewed(node):
        chain.insert(0, node)
        node = node.args[0]
    return node, chain


def share_results(gm: torch.fx.GraphModule, n_results: int) -> list[str]:
    """Computes results, of the first n_results, that are in the same memory by views of their own, of that memory. Returns the names of these views, which are
    to stay in PyTorch; those of arguments are made outside of the graph."""
    out = next(n for n in gm.graph.nodes if n.op == "output")
    results = {n: views_of(n) for n in out.args[0][:n_results] if isinstance(n, torch.fx.Node)}
    bases = [base for base, _ in results.values()]
    names: list[str] = []
    copied: dict[torch.fx.Node, torch.fx.Node] = {}
    for n, (base, chain) in results.items():
        if chain and bases.count(base) > 1 and base.op == "call_function":
            with gm.graph.inserting_before(out):
                for v in chain:
                    if v not in copied:
                        copied[v] = gm.graph.node_copy(v, lambda a: copied.get(a, a))
                        names.append(copied[v].name)
    out.args = (torch.fx.node.map_arg(out.args[0], lambda n: copied.get(n, n)),)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return names


# --- strides ---


def known_size(v: Any) -> Any:
    """A size, or that of the call that is traced; None: data decide it."""
    if not isinstance(v, torch.SymInt):
        return v
    return v.node.hint if v.node.has_hint() else None


def memory_order(tensor: torch.Tensor) -> list[int] | None:
    """The axes of a traced tensor as its memory has them, outermost first; None: row-major, or an element stands for several."""
    shape, stride = ([known_size(v) for v in part] for part in (tensor.shape, tensor.stride()))
    if None in shape or None in stride:
        return None
    long = [d for d, n in enumerate(shape) if n != 1]
    order = sorted(long, key=lambda d: -int(stride[d]))
    if order == long or any(stride[d] == 0 for d in long):
        return None
    return [d for d in range(len(shape)) if d not in long] + order


def inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def permuted(graph: torch.fx.Graph, node: torch.fx.Node, order: Sequence[int]) -> torch.fx.Node:
    """A node that gives a tensor of node.meta["val"] with its axes in this order."""
    new = graph.call_function(torch.ops.aten.permute.default, (node, order))
    new.meta["val"] = node.meta["val"].permute(order)
    return new


def order_of(node: Any) -> list[int] | None:
    """memory_order() of a node's tensor; None: it has none."""
    return memory_order(node.meta["val"]) if isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor) else None


def take_strides(gm: torch.fx.GraphModule, which: Sequence[bool]) -> list[list[int] | None]:
    """Lets a graph take arguments (which: of each, whether) in the order in which PyTorch has them in memory. Returns, per argument, the axes to permute it by
    before; None: as it is."""
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    orders = [order_of(n) if is_one else None for n, is_one in zip(places, which)]
    with gm.graph.inserting_before(next(n for n in gm.graph.nodes if n.op != "placeholder")):
        for n, order in zip(places, orders):
            if order:
                n.meta["val"] = n.meta["val"].permute(order)
                back = permuted(gm.graph, n, inverse(order))
                n.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)
    gm.recompile()
    return orders


def keep_strides(gm: torch.fx.GraphModule) -> list[list[int] | None]:
    """Lets a graph return results in the order in which PyTorch has them in memory: operators that were traced behind it may depend on that (view), and so may
    callers. Returns, per result, the axes to permute it by then; None: as it is."""
    out = next(n for n in gm.graph.nodes if n.op == "output")
    orders = [order_of(r) for r in out.args[0]]
    with gm.graph.inserting_before(out):
        out.args = (tuple(permuted(gm.graph, r, order) if order else r for r, order in zip(out.args[0], orders)),)
    gm.recompile()
    return [order and inverse(order) for order in orders]


# --- translation ---


def is_mixed(gm: torch.fx.GraphModule) -> bool:
    """Whether an operator has operands of different types, which PyTorch promotes by itself: tensors, or a tensor and a number; or integers, of which it makes
    floats (division, square roots)."""
    for n in gm.graph.nodes:
        if n.op != "call_function" or isinstance(n.target, type(operator.add)) or is_size(n):
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
    for n in list(gm.graph.nodes):
        if n.op != "call_function" or n.target is not torch.ops.aten.scalar_tensor.default or not isinstance(n.args[0], float):
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
    core, passes, fx_passes, registry = exporter()
    if is_mixed(gm):
        gm = keep_numbers(fx_passes.InsertTypePromotion(gm).run())
    for n in gm.graph.nodes:
        n.meta["nn_module_stack"] = {}  # for names that nobody needs
        if n.op == "get_attr":
            n.meta["val"] = getattr(gm, n.target)
    model = ir.Model(ir.Graph([], [], nodes=[], name="piece"), ir_version=10, producer_name="pytorch")
    try:
        core._translate_fx_graph(gm.graph, model, graph_like=model.graph, owned_graphs={}, lower="at_conversion", registry=registry)
    except Exception as e:
        name = re.search(r"translating node %(\w+)", str(e))
        cause: BaseException = e
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise Refused(name.group(1) if name else None, f"PyTorch's exporter: {str(cause).splitlines()[0] if str(cause) else type(cause).__name__}") from e
    for k, node in enumerate(model.graph):
        fx = node.meta.get("node")
        node.name = f"{fx.name if fx is not None else 'piece'}.{k}"
    passes.add_opset_imports(model)
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


# --- identity ---


def describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{tuple(map(str, value.shape))}"
    if isinstance(value, (tuple, list)):
        return "(" + ",".join(describe(v) for v in value) + ")"
    return str(value)


def content(gm: torch.fx.GraphModule) -> str:
    """The graph as text, without names: equal texts, equal networks but for the values of the arguments."""
    number, lines = {}, []
    for k, n in enumerate(gm.graph.nodes):
        number[n] = k
        args, kwargs = torch.fx.node.map_arg((n.args, n.kwargs), lambda a: f"%{number[a]}")
        target = "" if n.op in ("placeholder", "output") else str(n.target)
        lines.append(f"{n.op} {target} {args} {kwargs} {describe(n.meta.get('val')) if n.op != 'output' else ''}")
        if n.op == "get_attr":
            lines.append(digest(getattr(gm, n.target)))
    return "\n".join(lines)


def digest(tensor: Any) -> str:
    """Of a small constant's content."""
    if not isinstance(tensor, torch.Tensor):
        return str(tensor)
    return hashlib.sha256(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
