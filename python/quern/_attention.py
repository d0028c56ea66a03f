# SPDX-License-Identifier: Apache-2.0
"""quern.torch.scaled_dot_product_attention: attention and its gradients by operators of the library (doc/gradients.md)."""
from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Iterator, Sequence

import torch
from torch import Tensor

from ._torch_run import TYPES, Keyed, opaque, run_all

CAUSAL = (False, True, "lower_right")
SCORES = 1 << 24  # of a part of the gradients, at most, unless it has 64 rows of queries or fewer
TRIMMED = 128     # rows of queries of a part that has only the keys that a causal mask or a window leaves
AXES = "(batch, heads, positions, head size)"
WINDOW = "two integers (keys in front of a query's own, keys behind it), None for any number"


class Spec(Keyed):
    """The attributes of an attention. heads: of queries and keys if operands are (batch, positions, heads * head size)."""

    def __init__(self, causal: bool | str, scale: float | None, softcap: float | None, window: Any, heads: tuple[int, int] | None = None) -> None:
        self.causal, self.scale, self.softcap = causal, None if scale is None else float(scale), float(softcap or 0)
        if not isinstance(window, (tuple, list)):
            raise TypeError(f"window is {window!r}, expected {WINDOW}")
        self.window = tuple(-1 if w is None else w for w in window)
        self.heads = heads
        if causal not in CAUSAL:
            raise ValueError(f"is_causal is {causal!r}, expected one of {', '.join(map(repr, CAUSAL))}")
        if not 0 <= self.softcap < math.inf:
            raise ValueError(f"softcap is {softcap}, expected a finite number, 0 or more")
        if len(self.window) != 2 or not all(isinstance(w, int) and w >= -1 for w in self.window):
            raise ValueError(f"window is {window!r}, expected {WINDOW}")

    def key(self) -> tuple[Any, ...]:
        return (str(self.causal), self.scale, self.softcap, self.window, self.heads)

    def with_heads(self, heads: tuple[int, int] | None) -> Spec:
        return Spec(self.causal, self.scale, self.softcap, self.window, heads)

    def lower_right(self) -> Spec:
        return Spec("lower_right", self.scale, self.softcap, self.window, self.heads)

    def without_band(self) -> Spec:
        return Spec(False, self.scale, self.softcap, (None, None), self.heads)

    def is_banded(self) -> bool:
        return bool(self.causal) or max(self.window) >= 0

    def bounds(self) -> tuple[int, int]:
        """Keys in front of a query's own and behind it that it may attend to, at most; -1: any number."""
        return self.window[0], 0 if self.causal else self.window[1]

    def first(self, s: int, t: int) -> int:
        """The key that belongs to the first of s queries; may be none of the t keys."""
        return t - s if self.causal == "lower_right" else 0

    def reach(self, places: slice, t: int) -> slice:
        """Those of t keys that queries may attend to whose own keys are `places`."""
        left, right = self.bounds()
        return slice(max(0, places.start - left) if left >= 0 else 0, min(t, places.stop + right) if right >= 0 else t)

    def allowed(self, places: slice, keys: slice, device: torch.device) -> Tensor | None:
        """Which of the keys each of the queries may attend to whose own keys are `places`, (queries, keys); None: all."""
        left, right = self.bounds()
        at, own = (torch.arange(x.start, x.stop, device=device) for x in (keys, places))
        ahead = at[None, :] - own[:, None]
        bounds = ([ahead >= -left] if left >= 0 else []) + ([ahead <= right] if right >= 0 else [])
        return bounds[0] & bounds[-1] if bounds else None

    def attributes(self) -> dict[str, Any]:
        """Those that differ from the operator's defaults."""
        a: dict[str, Any] = {"is_causal": 1} if self.causal else {}
        a.update({"lower_right": 1} if self.causal == "lower_right" else {})
        a.update({} if self.scale is None else {"scale": self.scale})
        a.update({"softcap": self.softcap} if self.softcap else {})
        for name, w in zip(("left_window_size", "right_window_size"), self.window):
            a.update({name: w} if w >= 0 else {})
        a.update(dict(zip(("q_num_heads", "kv_num_heads"), self.heads)) if self.heads else {})
        return a


# --- running ---


def is_packed(t: Tensor) -> bool:
    """Whether heads of one position are neighbours in memory, as a projection leaves them."""
    return t.transpose(1, 2).is_contiguous() and not t.is_contiguous()


def packed(t: Tensor) -> Tensor:
    return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)


def unpacked(t: Tensor, heads: int) -> Tensor:
    return t.view(*t.shape[:2], heads, -1).transpose(1, 2)


class Operands:
    """q, k, v and the spec as the operators take them, in place where possible."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, spec: Spec) -> None:
        self.is_packed = all(map(is_packed, (q, k, v)))
        self.spec = spec.with_heads((q.shape[1], k.shape[1])) if self.is_packed else spec
        self.heads = (q.shape[1], k.shape[1], v.shape[1])
        self.q, self.k, self.v = map(self.given, (q, k, v))

    def given(self, t: Tensor) -> Tensor:
        return packed(t) if self.is_packed else t

    def returned(self, t: Tensor, heads: int) -> Tensor:
        return unpacked(t, heads) if self.is_packed else t

    def shape(self, *shape: int) -> tuple[int, ...]:
        b, h, s, d = shape
        return (b, s, h * d) if self.is_packed else shape


class Attention(torch.autograd.Function):
    """Attention whose gradients need only its inputs, output, and statistics of rows (doc/gradients.md)."""
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sink: Tensor | None, spec: Spec) -> Tensor:
        x = Operands(q, k, v, spec)
        inputs = [x.q, x.k, x.v, mask, None, None, None, sink]
        outputs = [(x.shape(*q.shape[:3], v.shape[3]), q.dtype)]
        ctx.spec = spec
        if not any(ctx.needs_input_grad):
            return x.returned(run_all("quern::Attention", x.spec, None, inputs, outputs)[0], q.shape[1])
        rows = (tuple(q.shape[:3]), torch.promote_types(q.dtype, torch.float32))
        y, row_max, row_log_sum = run_all("quern::AttentionForward", x.spec, None, inputs, [*outputs, rows, rows])
        y = x.returned(y, q.shape[1])
        ctx.save_for_backward(q, k, v, mask, sink, y, row_max, row_log_sum)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        need = ctx.needs_input_grad
        return (*Gradients.apply(*ctx.saved_tensors, g, ctx.spec, need[:5]), None)


class Part:
    """Some batches and rows of queries, with the keys that they may attend to.
    sizes: whether the number of keys has a name, so that all parts have one kernel
    near: makes the mask of keys that queries may attend to, (queries, keys), where the operator's attributes do not say it"""

    def __init__(self, batches: slice, rows: slice, keys: slice, spec: Spec, sizes: bool, near: Callable[[], Any] | None = None) -> None:
        self.batches, self.rows, self.keys, self.spec = batches, rows, keys, spec
        self.sizes, self.near = sizes, near

    def of_queries(self, t: Tensor) -> Tensor:
        return t[self.batches, :, self.rows]

    def of_keys(self, t: Tensor) -> Tensor:
        return t[self.batches, :, self.keys]

    def of_mask(self, t: Tensor) -> Tensor | None:
        """The mask's axes count from the last one, and may have size 1."""
        if t is None:
            return None
        at = [self.batches, slice(None), self.rows, self.keys][4 - t.dim():]
        return t[tuple(slice(None) if n == 1 and i < t.dim() - 1 else a for i, (n, a) in enumerate(zip(t.shape, at)))]

    def near_mask(self, mask: Tensor | None) -> Tensor | None:
        """A mask of this part together with `near`."""
        if self.near is None:
            return mask
        near = self.near()
        if mask is None:
            return near
        return mask & near if mask.dtype == torch.bool else mask.masked_fill(~near, -math.inf)

    def names(self, rank: int, mask: Tensor | None) -> str | None:
        """See Operator."""
        if not self.sizes:
            return None
        keys = "?:T:?" if rank == 3 else "?:?:T:?"
        return ",".join([":".join("?" * rank), keys, keys] + ([] if mask is None else ["?:" * (mask.dim() - 1) + "T"]))


def is_whole(q: Tensor, need: Sequence[bool]) -> bool:
    """Whether a kernel computes all gradients without scores in memory (doc/gradients.md)."""
    return q.device.type == "cpu" and q.dtype != torch.float64 and not need[3]


def parts_of(q: Tensor, k: Tensor, spec: Spec, need: Sequence[bool]) -> Iterator[Part]:
    """All of it, if that is little; what a part needs of memory grows with the number of keys at most, not with that of queries."""
    (b, h, s, _), t = q.shape, k.shape[2]
    if 0 in (b, h, s, t):
        return
    if is_whole(q, need):
        yield Part(slice(0, b), slice(0, s), slice(0, t), spec, False)
        return
    first = spec.first(s, t)
    trims = spec.causal and first >= 0 and first + s <= t  # then a part is an attention of its own, whose last query belongs to its last key
    batches, rows = min(b, max(1, SCORES // (h * s * t))), min(s, TRIMMED) if trims or spec.is_banded() and h * s * t > SCORES else s
    if h * rows * t > SCORES:
        rows = min(s, max(64, SCORES // (h * t) // 64 * 64))
    divides = spec.is_banded() and rows < s
    for i in range(0, b, batches):
        for j in reversed(range(0, s, rows)):  # the most keys first: schedules are chosen for these
            end, keys, how, near = min(j + rows, s), slice(0, t), spec, None
            if divides:
                places = slice(j + first, end + first)
                keys = spec.reach(places, t)
                how, near = (spec.lower_right(), None) if trims else (spec.without_band(), partial(spec.allowed, places, keys, q.device))
            if keys.start < keys.stop:
                yield Part(slice(i, min(i + batches, b)), slice(j, end), keys, how, divides, near)


def gradients_of(part: Part, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sink: Tensor | None, y: Tensor, row_max: Tensor, row_log_sum: Tensor,
                 g: Tensor, need: Sequence[bool]) -> list[Tensor | None]:
    """By q, k, v, mask and sinks; None: not needed."""
    x = Operands(part.of_queries(q), part.of_keys(k), part.of_keys(v), part.spec)
    own, y, row_max, row_log_sum, g = part.of_mask(mask), *map(part.of_queries, (y, row_max, row_log_sum, g))
    need = [*[n or is_whole(q, need) for n in need[:3]], *need[3:]]  # by q, k and v it is one kernel
    mask = part.near_mask(own)
    given, wanted = [x.q, x.k, x.v, mask, None, None, sink], [*need[:4], False, False, need[4]]
    outputs = [(tuple(t.shape), t.dtype) if w else None for t, w in zip(given, wanted)]
    inputs = [*given[:6], None, sink, x.given(y), row_max, row_log_sum, x.given(g)]
    grads = run_all("quern::AttentionGrad", x.spec, part.names(x.q.dim(), mask), inputs, outputs)
    dmask = grads[3] if grads[3] is None or part.near is None or own is None else grads[3].sum_to_size(own.shape)
    return [*(None if t is None else x.returned(t, h) for t, h in zip(grads[:3], x.heads)), dmask, grads[6]]


class Gradients(torch.autograd.Function):
    """The gradients, by parts of bounded memory; a function of its own, so that second derivatives are errors."""
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sink: Tensor | None, y: Tensor, row_max: Tensor, row_log_sum: Tensor, g: Tensor,
                spec: Spec, need: Sequence[bool]) -> tuple[Tensor | None, ...]:
        operands = (q, k, v, mask, sink)
        parts = list(parts_of(q, k, spec, need))
        if len(parts) == 1:
            return tuple(t if n else None for t, n in zip(gradients_of(parts[0], *operands, y, row_max, row_log_sum, g, need), need))
        sums = [torch.zeros_like(t, dtype=torch.promote_types(t.dtype, torch.float32)) if n else None for t, n in zip(operands, need)]
        for part in parts:
            places: tuple[Callable[[Any], Any], ...] = (part.of_queries, part.of_keys, part.of_keys, part.of_mask, lambda t: t)
            for total, place, add in zip(sums, places, gradients_of(part, *operands, y, row_max, row_log_sum, g, need)):
                if add is not None:
                    place(total).add_(add)
        return tuple(None if t is None else t.to(o.dtype) for t, o in zip(sums, operands))

    @staticmethod
    def backward(ctx: Any, *g: Any) -> None:
        raise NotImplementedError("attention has first derivatives only")


# --- ONNX ---


def formula(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sink: Tensor | None, spec: Spec) -> Tensor:
    """By PyTorch's operators, which exporters know, and whose chain quern.compile takes as one attention."""
    groups = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(groups, 1) if groups > 1 else t for t in (k, v))
    x = (q * (1 / math.sqrt(q.shape[3]) if spec.scale is None else spec.scale)) @ k.transpose(2, 3)
    x = spec.softcap * torch.tanh(x / spec.softcap) if spec.softcap else x
    x = x + mask if mask is not None and mask.dtype != torch.bool else x
    (s, t), near = (q.shape[2], k.shape[2]), None
    if spec.is_banded():
        first = spec.first(s, t)
        near = spec.allowed(slice(first, first + s), slice(0, t), q.device)
    for m in (mask if mask is not None and mask.dtype == torch.bool else None, near):
        x = x if m is None else x.masked_fill(~m, -math.inf)
    if sink is not None:
        x = torch.cat([x, sink.to(x.dtype)[None, :, None, None].expand(*x.shape[:3], 1)], 3)
    p = torch.softmax(x, 3)
    if mask is not None or near is not None:
        p = p.masked_fill(p.isnan(), 0)  # rows without positions
    return (p if sink is None else p[..., :-1]) @ v


# --- the function ---


def check_tensor(name: str, t: Tensor) -> None:
    if not isinstance(t, Tensor):
        raise TypeError(f"{name} is a {type(t).__name__}, expected a tensor")


def check_device(name: str, t: Tensor, q: Tensor) -> None:
    if t.device != q.device:
        raise ValueError(f"{name} on '{t.device}', the query on '{q.device}'")


def check(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raises TypeError or ValueError if queries, keys and values do not fit each other."""
    for name, t in (("query", q), ("key", k), ("value", v)):
        check_tensor(name, t)
        if t.dtype not in TYPES or t.dtype != q.dtype:
            raise TypeError(f"{name} has type {t.dtype}, expected {q.dtype if q.dtype in TYPES else ' or '.join(map(str, TYPES))}")
        check_device(f"{name} lies", t, q)
        if t.dim() != 4:
            raise ValueError(f"{name} has shape {tuple(t.shape)}, expected 4 axes {AXES}")
    for name, t, axes in (("key", k, (0, 3)), ("value", v, (0,))):
        if any(t.shape[i] != q.shape[i] for i in axes):
            raise ValueError(f"{name} has shape {tuple(t.shape)}, which does not fit the query's {tuple(q.shape)}: {AXES}")
    if v.shape[1:3] != k.shape[1:3]:
        raise ValueError(f"value has shape {tuple(v.shape)}, expected heads and positions of the key's {tuple(k.shape)}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"the query {tuple(q.shape)} has {q.shape[1]} heads, which is no multiple of the {k.shape[1]} of the key {tuple(k.shape)}")


def check_sinks(sinks: Tensor | None, q: Tensor) -> None:
    """Raises TypeError or ValueError if sinks are not one float for each head of the queries."""
    if sinks is None:
        return
    check_tensor("sinks", sinks)
    if sinks.dtype not in TYPES or tuple(sinks.shape) != (q.shape[1],):
        raise ValueError(f"sinks have shape {tuple(sinks.shape)} and type {sinks.dtype}, expected floats of shape ({q.shape[1]},), one for each head of "
                         f"the query {tuple(q.shape)}")
    check_device("sinks lie", sinks, q)


def fitted(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The mask with all keys, whose last axis the operators do not repeat."""
    want = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if mask is None:
        return None
    check_tensor("attn_mask", mask)
    if mask.dtype != torch.bool and mask.dtype not in TYPES:
        raise TypeError(f"attn_mask has type {mask.dtype}, expected torch.bool or the type of the query")
    if not 1 <= mask.dim() <= 4 or any(m not in (1, w) for m, w in zip(mask.shape[::-1], want[::-1])):
        raise ValueError(f"attn_mask has shape {tuple(mask.shape)}, which cannot be expanded to {want}: (batch, heads, queries, keys)")
    check_device("attn_mask lies", mask, q)
    return mask.expand(*mask.shape[:-1], k.shape[2])


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                 is_causal: bool | str = False, scale: float | None = None, enable_gqa: bool = True, *, softcap: float | None = 0.0,
                                 window: Any = (None, None), sinks: Tensor | None = None) -> Tensor:
    """softmax(query key^T * scale + attn_mask) value, as torch.nn.functional.scaled_dot_product_attention, with more options. Scores are not
    kept for the gradients, but computed again, by blocks of queries and keys.

    query       (batch, heads, queries, head size), f16, bf16, f32 or f64; any strides. Heads side by side in memory, as a projection's
                `view(b, s, heads, d).transpose(1, 2)` leaves them, are used in place, and the result then lies like that
    key, value  (batch, key heads, keys, head size): heads of the query are a multiple of theirs, neighbouring ones share a key head. The
                values' size of a head may be another one
    attn_mask   boolean, False: not attended to; or floats that are added, which may have gradients. It repeats along axes of size 1
    dropout_p   must be 0, others are a NotImplementedError
    is_causal   True: query i attends to keys up to i; "lower_right": the last query to all keys, the one before to one key less ...
    scale       1 / sqrt(head size) by default
    enable_gqa  False: an error if there are fewer heads of keys than of queries
    softcap     scores become softcap * tanh(score / softcap), before the mask
    window      keys in front of a query's own and behind it that it attends to at most; None: any number
    sinks       (heads): one more term of each row's sum of exponentials, without a value; may have gradients

    Rows without any position left are 0, and so are their gradients. First derivatives only; second ones are a NotImplementedError. Errors of
    arguments are TypeError (of what is no tensor, or has a wrong type) and ValueError.
    """
    if dropout_p:
        raise NotImplementedError(f"dropout_p is {dropout_p}, supported is 0")
    spec = Spec(is_causal, scale, softcap, window)
    check(query, key, value)
    check_sinks(sinks, query)
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError(f"enable_gqa is False, but the query {tuple(query.shape)} has other heads than the key {tuple(key.shape)}")
    mask = fitted(attn_mask, query, key)
    if query.shape[3] == 0:  # all scores are 0, as those of one column of zeros
        query, key = (torch.nn.functional.pad(t, (0, 1)) for t in (query, key))
    if torch.onnx.is_in_onnx_export():
        return formula(query, key, value, mask, sinks, spec)
    y: Tensor = opaque(Attention.apply, query, key, value, mask, sinks, spec)
    return y
