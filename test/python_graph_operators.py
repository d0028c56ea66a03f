# SPDX-License-Identifier: Apache-2.0
#
# The statements that random programs are made of (test/python_graph_maker.py): a function for each kind of operator, which adds one to a program, or none where
# no value fits.
KINDS = []


def kind(f, times=1):
    KINDS.extend([f] * times)
    return f


def often(times):
    return lambda f: kind(f, times)


def smooth(v):
    """A value that may be summed and taken functions of."""
    return v.is_float and not v.extreme


# --- elementwise ---


@often(6)
def unary(m):
    v = m.pick(lambda v: v.is_float)
    if v:
        m.add(m.rng.choice("""F.relu(%) torch.sigmoid(%) torch.tanh(%) torch.exp(%) F.gelu(%) F.gelu(%,approximate='tanh') F.silu(%) F.elu(%) F.softplus(%)
              F.leaky_relu(%,0.1) F.hardswish(%) F.hardtanh(%) F.mish(%) F.logsigmoid(%) torch.sqrt(%.abs()) torch.rsqrt(%.abs()+1) torch.sin(%) torch.cos(%)
              torch.log1p(%.abs()) torch.erf(%) torch.reciprocal(%) torch.square(%) torch.expm1(%) torch.atan(%) torch.log(%.abs()) torch.exp2(%)
              F.softsign(%) F.relu6(%) F.hardsigmoid(%) F.selu(%) F.celu(%) F.softshrink(%) F.tanhshrink(%) torch.nan_to_num(%) torch.log2(%.abs()+1)
              torch.frac(%) torch.asinh(%) torch.sinh(%) torch.tan(%)""".split()).replace("%", v.name), False, v.extreme)


@often(3)
def exact_unary(m):
    v = m.pick(lambda v: v.exact)
    if not v:
        return
    floats = "F.relu(%) -% %.abs() %.sign() %.floor() %.ceil() %.round() %.trunc() %.clamp(-1,2) %.clamp(min=0) %.isnan() %.isinf() %.isfinite() %==0 %.signbit()"
    ints = "-% %.abs() %.sign() %.clamp(1,3) %.clamp(max=2) ~% %.to(net.f32) %.bool() %.to(net.i64) %*% %+1 %-1 %==1"
    bools = "~% %.to(net.f32) %.to(net.i64) %.to(net.u8) torch.logical_not(%) %.to(net.i32)"
    m.add(m.rng.choice((floats if v.is_float else ints if v.is_int else bools).split()).replace("%", v.name), True, v.extreme)


def partner(m, v, want):
    """The text of a second operand for v: a value that PyTorch can broadcast with it, a weight, or a number."""
    roll = m.rng.random()
    if roll < 0.2 and v.is_float:
        return m.weight(v.shape[v.rank - m.rng.randrange(v.rank + 1):], m.type_of(v)), True, False
    if roll < 0.5:
        return m.rng.choice(["2", "0.5", "3", "-1.5", "7"] if v.is_float else ["2", "3", "1.5", "-1"]), True, False
    o = m.pick(lambda o: want(o) and (o.shape == v.shape or o.rank == 0 or all(a == b or 1 in (a, b) for a, b in zip(o.shape[::-1], v.shape[::-1]))))
    return (o.name, o.exact, o.extreme) if o else ("2", True, False)


@often(6)
def binary(m):
    v = m.pick(lambda v: v.is_float or v.is_int)
    if v:
        o, exact, extreme = partner(m, v, lambda o: o.is_float or o.is_int)
        text = m.rng.choice(["{a} + {o}", "{a} - {o}", "{a} * {o}", "{a} / {o}", "{o} - {a}", "torch.add({a}, {o}, alpha=2)", "torch.rsub({a}, {o})"])
        m.add(text.format(a=v.name, o=o), v.exact and exact and not v.is_float and "/" not in text and "." not in o, v.extreme or extreme)


@often(3)
def exact_binary(m):
    v = m.pick(lambda v: v.exact)
    if v:
        o, exact, extreme = partner(m, v, lambda o: o.exact and o.t.dtype == v.t.dtype)
        o = o if exact else "1"
        text = m.rng.choice(["{a} < {o}", "{a} >= {o}", "{a} == {o}", "{a} != {o}", "torch.maximum({a}, {o})", "torch.minimum({a}, {o})", "{a} & {o}", "{a} | {o}",
                             "{a} ^ {o}", "torch.logical_and({a}, {o})", "torch.logical_xor({a}, {o})"])
        m.add(text.format(a=v.name, o=o), True, v.extreme or extreme)


@kind
def integer_division(m):
    v = m.pick(lambda v: v.is_int and v.exact)
    if v:
        m.add(m.rng.choice(["% // 3", "% % 3", "torch.div(%, 2, rounding_mode='trunc')", "torch.remainder(%, -4)", "torch.fmod(%, 3)", "% >> 1", "% // -2"])
              .replace("% ", v.name + " ").replace("(%", "(" + v.name), True, v.extreme)


@often(2)
def select(m):
    c = m.pick(lambda v: v.t.dtype.is_floating_point is False and not v.is_int)
    v = m.pick(lambda v: v.is_float)
    if c and v:
        m.add(m.rng.choice([f"torch.where({c.name}, {v.name}, {v.name} * 2)", f"{v.name}.masked_fill({c.name}, -1.5)", f"torch.where({c.name}, {v.name}, 0)",
                            f"{v.name}.masked_fill({c.name}, -math.inf)", f"torch.where({c.name}, 1.0, {v.name})"]), False, v.extreme)


@kind
def cast(m):
    v = m.pick(lambda v: v.exact and not v.extreme or v.is_float)
    if v:
        to = m.rng.choice(["f32", "f64", "f16", "bf16"] if not v.exact or v.is_float else ["f32", "f64", "i64", "i32", "bool", "f16"])
        m.add(f"{v.name}.to(net.{to})", v.exact and not v.is_float, v.extreme)


# --- reductions ---


def axis(m, v):
    return m.rng.randrange(-v.rank, v.rank) if v.rank else 0


@often(4)
def reduction(m):
    v = m.pick(smooth)
    if v:
        d, keep = axis(m, v), m.rng.random() < 0.5
        m.add(m.rng.choice([f"%.sum({d}, keepdim={keep})", f"%.mean({d}, keepdim={keep})", "%.sum()", "%.mean()", f"%.var({d}, keepdim={keep})",
                            f"torch.softmax(%, {d})", f"F.log_softmax(%, {d})", f"torch.logsumexp(%, {d})", f"torch.cumsum(%, {d})", f"%.norm(dim={d}, keepdim={keep})",
                            f"F.normalize(%, dim={d})", f"%.std({d}, unbiased=False)", f"%.prod({d})", f"torch.linalg.vector_norm(%, 1, {d})",
                            f"%.sum([0, {max(v.rank - 1, 0)}])", f"F.softmin(%, {d})", f"%.mean([{', '.join(map(str, range(min(v.rank, 2))))}])"])
              .replace("%", v.name), False)


@often(2)
def exact_reduction(m):
    v = m.pick(lambda v: v.exact and v.rank and not (v.is_float and v.t.isnan().any()))  # maxima without NaN: doc/element-types.md
    if v:
        d, keep = axis(m, v), m.rng.random() < 0.5
        both = [f"%.amax({d}, keepdim={keep})", f"%.amin({d})", "%.max()", "%.min()", f"%.max({d}, keepdim={keep})[0]", f"%.argmax({d})", f"%.sort({d})[0]",
                f"%.topk(1, {d})[0]", f"%.cummax({d})[0]"]
        words = [f"%.any({d})", f"%.all({d}, keepdim={keep})", "%.any()", f"%.count_nonzero({d})"]
        m.add(m.rng.choice(words if not v.is_float and not v.is_int else both + words + ([f"%.sum({d})", f"%.cumsum({d})", f"%.prod({d})"] if v.is_int else []))
              .replace("%", v.name), True, v.extreme)


# --- views and movements ---


@often(8)
def view(m):
    v = m.pick()
    r, k = v.rank, m.rng
    order = k.sample(range(r), r)
    a = k.randrange(r) if r else 0
    size = v.shape[a] if r else 1
    first, last, step = k.randrange(-2, size + 2), k.randrange(-2, size + 3), k.choice([1, 1, 1, 2, 3])
    shape = list(v.shape)
    if r > 1 and k.random() < 0.5:
        j = k.randrange(r - 1)
        shape[j:j + 2] = [-1 if shape[j] * shape[j + 1] else 0] if not (m.is_dynamic and j == 0 and k.random() < 0.5) else [-1]
    elif r:
        d = k.choice([d for d in range(1, max(size, 1) + 1) if size % d == 0] or [1])
        shape[a:a + 1] = [size // d, d]
    texts = [f"%.permute({order})", f"%.reshape({m.sizes(shape)})", f"%.view({m.sizes(shape)})", f"%.unsqueeze({k.randrange(-r - 1, r + 1)})", f"%.squeeze({a})",
             f"%[{':, ' * a}{first}:{last}:{step}]", f"%.select({a}, {k.randrange(max(size, 1))})", f"%.flip({a})", f"%.roll({k.randrange(-2, 3)}, {a})", "%.contiguous()",
             f"%.flatten({a})", f"%.transpose({a}, {k.randrange(r) if r else 0})", f"%.split({max(1, size // 2)}, {a})", f"%.chunk(2, {a})", f"%.unbind({a})[-1]",
             f"%.expand({m.sizes([k.choice([2, 3])] + list(v.shape))})", f"%.repeat({[k.choice([1, 2]) for _ in range(r)]})", f"%.narrow({a}, 0, {max(1, size // 2)})",
             f"%.movedim({a}, 0)", f"torch.diagonal(%, 0, 0, {a})", "%.clone()", f"%.unfold({a}, {max(1, min(size, 2))}, 1)", "%[None]", "%[..., -1]", "%.mT",
             "torch.tril(%)", "torch.triu(%, 1)", f"%.repeat_interleave(2, {a})", "%.squeeze()", f"torch.tile(%, (2,))", "%.detach()", f"torch.atleast_2d(%)"]
    m.add(k.choice(texts).replace("%", v.name), v.exact, v.extreme)


@often(2)
def join(m):
    v = m.pick(lambda v: v.rank)
    o = v and m.pick(lambda o: o.t.dtype == v.t.dtype and o.rank == v.rank)
    if o:
        a = axis(m, v)
        m.add(m.rng.choice([f"torch.cat([{v.name}, {o.name}], {a})", f"torch.stack([{v.name}, {o.name}], {a})", f"torch.cat([{v.name}, {v.name}[:1]])"]),
              v.exact and o.exact, v.extreme or o.extreme)


@often(2)
def index(m):
    v = m.pick(lambda v: v.rank and all(v.shape))
    if not v:
        return
    k, a = m.rng, m.rng.randrange(v.rank)
    rows = [k.randrange(v.shape[a]) for _ in range(k.choice([1, 2, 4]))]
    if m.is_dynamic and v.shape[a] == 7:
        rows = [0 for _ in rows]
    signed = [r - v.shape[a] if k.random() < 0.3 and not (m.is_dynamic and v.shape[a] == 7) else r for r in rows]
    i = f"torch.tensor({rows})"
    texts = [f"%.index_select({a}, {i})", f"%[{':, ' * a}torch.tensor({signed})]", f"%.gather({a}, torch.zeros_like(%, dtype=torch.int64))", f"%[torch.tensor([[0], [0]])]",
             f"%.index_fill({a}, {i}, 0)", f"%.index_add({a}, {i}, %.index_select({a}, {i}))", f"%.scatter({a}, torch.zeros_like(%, dtype=torch.int64)[:1], 1)",
             f"torch.take_along_dim(%, torch.zeros_like(%, dtype=torch.int64), {a})"]
    m.add(k.choice(texts).replace("%", v.name), v.exact, v.extreme)


@kind
def pad(m):
    v = m.pick(lambda v: v.rank)
    if v:
        k = m.rng
        p = [k.randrange(-1, 3) for _ in range(2 * min(v.rank, k.choice([1, 2])))]
        m.add(k.choice([f"F.pad(%, {p})", f"F.pad(%, {p}, value=1)", f"F.pad(%, {[abs(x) for x in p]}, mode='reflect')",
                        f"F.pad(%, {[abs(x) for x in p]}, mode='replicate')", f"F.pad(%, {p}, mode='circular')"]).replace("%", v.name), v.exact, v.extreme)


@kind
def constructor(m):
    k = m.rng
    n = k.choice([1, 3, 4, 8])
    m.add(k.choice([f"torch.arange({n})", f"torch.zeros({m.sizes(m.shape(2))})", "torch.ones(3, 4, dtype=net.f16)", f"torch.eye({n})",
                    f"torch.full(({n},), 2.5, dtype=net.f64)", f"torch.tensor([1, {n}, -2])", f"torch.arange(0, {n}, 0.5)", "torch.arange(b) * 2" if m.is_dynamic else
                    "torch.arange(7, 0, -2)"]), True)


# --- layers ---


@often(4)
def matrix(m):
    v = m.pick(lambda v: smooth(v) and v.rank)
    if not v:
        return
    k, t, n = m.rng, m.type_of(v), m.rng.choice([1, 3, 8, 17])
    roll = k.randrange(5)
    if roll == 0:
        m.add(f"F.linear({v.name}, {m.weight([n, v.shape[-1]], t)}{', ' + m.weight([n], t) if k.random() < 0.6 else ''})", False)
    elif roll == 1:
        m.add(f"{v.name} @ {m.weight([v.shape[-1], n], t)}", False)
    elif roll == 2:
        m.add(f"torch.matmul({v.name}, {v.name}.transpose(-1, -2))", False)
    elif roll == 3:
        o = m.pick(lambda o: smooth(o) and o.rank > 1 and o.t.dtype == v.t.dtype and o.shape[-2] == v.shape[-1])
        if o:
            m.add(f"torch.matmul({v.name}, {o.name})", False)
    else:
        m.add(k.choice([f"torch.einsum('...i,ij->...j', {v.name}, {m.weight([v.shape[-1], n], t)})", f"torch.outer({v.name}, {v.name})",
                        f"torch.bmm({v.name}, {v.name}.transpose(1, 2))", f"torch.dot({v.name}, {v.name})", f"torch.mv({v.name}, {m.weight([v.shape[-1]], t)})"]), False)


@often(3)
def convolution(m):
    v = m.pick(lambda v: smooth(v) and v.rank in (3, 4) and v.shape[1])
    if not v:
        return
    k, t, n, c = m.rng, m.type_of(v), v.rank - 2, v.shape[1]
    g = k.choice([g for g in (1, c, 2, 3) if c % g == 0])
    out = g * k.choice([1, 2, 4])
    kernel = [k.choice([1, 2, 3]) for _ in range(n)]
    more = f"stride={k.choice([1, 1, 2])}, padding={k.choice([0, 1, 1, 2])}, dilation={k.choice([1, 1, 2])}, groups={g}"
    bias = m.weight([out], t) if k.random() < 0.6 else "None"
    if k.random() < 0.75:
        m.add(f"F.conv{n}d({v.name}, {m.weight([out, c // g, *kernel], t)}, {bias}, {more})", False)
    else:
        m.add(f"F.conv_transpose{n}d({v.name}, {m.weight([c, out // g, *kernel], t)}, {bias}, {more})", False)


@often(2)
def norm(m):
    v = m.pick(lambda v: smooth(v) and v.rank > 1 and v.t.numel())
    if not v:
        return
    k, t, c = m.rng, m.type_of(v), v.shape[1]
    tail = list(v.shape[-k.choice([1, 1, 2]):])
    texts = [f"F.layer_norm(%, {tail})", f"F.layer_norm(%, {tail[-1:]}, {m.weight(tail[-1:], t)}, {m.weight(tail[-1:], t)})", f"F.group_norm(%, 1)",
             f"F.group_norm(%, {c}, {m.weight([c], t)}, {m.weight([c], t)})", f"F.rms_norm(%, {tail[-1:]}, {m.weight(tail[-1:], t)})",
             f"F.instance_norm(%)", f"F.batch_norm(%, {m.weight([c], t)}, {m.weight([c], t)}.abs() + 0.5, {m.weight([c], t)}, {m.weight([c], t)})",
             f"F.rms_norm(%, {tail}, eps=1e-5)"]
    if not (m.is_dynamic and (7 in tail or c == 7)):
        m.add(k.choice(texts).replace("%", v.name), False)


@kind
def attention(m):
    v = m.pick(lambda v: smooth(v) and v.rank in (3, 4) and v.t.numel())
    if v:
        m.add(f"F.scaled_dot_product_attention({v.name}, {v.name}, {v.name}{m.rng.choice(['', ', is_causal=True', ', scale=0.3'])})", False)


@kind
def embedding(m):
    v = m.pick(lambda v: v.is_int and v.exact and not v.extreme)
    if v:
        m.add(f"F.embedding({v.name}.long() % 5, {m.weight([5, m.rng.choice([1, 3, 8])], m.rng.choice(['f32', 'f16', 'f64']))})", True)


@often(2)
def window(m):
    v = m.pick(lambda v: smooth(v) and v.rank in (3, 4) and v.t.numel())
    if not v:
        return
    k, n = m.rng, v.rank - 2
    mode = {1: "linear", 2: "bilinear"}[n]
    m.add(k.choice([f"F.max_pool{n}d(%, {k.choice([1, 2, 3])}, {k.choice([1, 2])}, {k.choice([0, 1])})", f"F.avg_pool{n}d(%, {k.choice([1, 2, 3])}, 1, {k.choice([0, 1])})",
                    f"F.adaptive_avg_pool{n}d(%, {k.choice([1, 2, 3])})", f"F.interpolate(%, scale_factor=2, mode='nearest')", f"F.avg_pool{n}d(%, 2, ceil_mode=True)",
                    f"F.interpolate(%, scale_factor=2, mode='{mode}', align_corners={k.choice([True, False])})", f"F.max_pool{n}d(%, 2, ceil_mode=True)",
                    f"F.interpolate(%, size={k.choice([3, 5])}, mode='{mode}')", f"F.glu(%, 1)", f"F.pixel_shuffle(%, 2)", f"F.unfold(%, 2)",
                    f"F.adaptive_max_pool{n}d(%, {k.choice([1, 2])})"]).replace("%", v.name), False)


# --- writes ---


@kind
def write(m):
    v = m.pick(lambda v: v.is_float and v.rank)
    if v:
        o = m.pick(lambda o: o.t.dtype == v.t.dtype and o.shape == v.shape)
        text = m.rng.choice(["{v}.add_(1)", "{v}.mul_({o})", "{v}[:1] = {o}[:1]", "{v}[..., 0] = 2", "{v}.copy_({o})", "{v}[..., -1].zero_()", "{v}.clamp_(-1, 1)",
                             "{v}.relu_()", "{v}[..., 1:].mul_(2)", "{v}.masked_fill_({o} > 0, 0.5)" if o.exact else "{v}.neg_()", "{v}.fill_(3)"])
        m.write(text.format(v=v.name, o=o.name), v.t, False, v.extreme or o.extreme)


@kind
def write_buffer(m):
    v = m.pick(lambda v: smooth(v) and v.rank and not (m.is_dynamic and 7 in v.shape))
    if v:
        name = m.buffer(list(v.shape), m.type_of(v))
        m.write(m.rng.choice([f"net.{name}.mul_(0.5).add_({v.name})", f"net.{name}.copy_({v.name})", f"net.{name}[:1] = {v.name}[:1]"]), m.state[name], False, False)
        m.add(m.rng.choice([f"net.{name} * 2", f"net.{name}", f"net.{name}[1:]"]), False)
