"""Random single operators: pointwise maps, folds, reindexing, gathers, casts, integers.

Not here: contractions, windows, blocks and regions (random_blocks.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from models.random_graph import CODES, INTEGERS, Builder, Extent, Unfit, Value

UNARY = (
    *("Abs", "Neg", "Exp", "Sigmoid", "Tanh", "Relu", "Erf", "Sin", "Cos", "Atan", "Softplus"),
    *("Softsign", "Elu", "Selu", "LeakyRelu", "HardSigmoid", "Floor", "Ceil", "Round", "Sign"),
    *("Celu", "ThresholdedRelu", "Reciprocal", "Identity", "Asinh", "Sinh", "HardSwish", "Mish"),
    *("Gelu", "Shrink", "Tan", "Cosh"),
)
BINARY = ("Add", "Mul", "Sub", "Div", "Max", "Min", "PRelu", "Pow", "Mean", "Sum")
COMPARE = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")
REDUCE = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"),
)


def unary(b: Builder) -> Value:
    """A map of one float operand; square roots and logarithms mostly of positive numbers."""
    x = b.real()
    if b.chance(0.12):
        return b.node(b.random.choice(("Sqrt", "Log")), [b.node("Abs", [x])])
    if b.chance(0.02):
        return b.node(b.random.choice(("Sqrt", "Log", "Acos", "Asin", "Acosh", "Atanh")), [x])
    return b.node(b.random.choice(UNARY), [x])


def chain(b: Builder) -> Value:
    """Several maps in a row."""
    x = b.real()
    for _ in range(b.random.randint(2, 4)):
        x = b.node(b.random.choice(UNARY[:12]), [x])
    return x


def companion(b: Builder, x: Value) -> Value:
    """An operand that broadcasts with `x` in some pattern, perhaps making the result larger."""
    same = [v for v in b.values if v.dtype == x.dtype and v is not x and suits(v, x)]
    if same and b.chance(0.5):
        return b.random.choice(same)
    if b.chance(0.06):
        return x
    kept = b.random.randint(0, x.rank)
    shape: list[Extent] = [d if b.chance(0.6) else 1 for d in x.shape[kept:]]
    grown = [
        b.extent(5) if d == 1 and b.chance(0.3) else e
        for d, e in zip(x.shape[kept:], shape, strict=False)
    ]
    if b.chance(0.05) and x.rank < 5 and kept == 0:
        grown = [b.extent(3), *grown]
    if all(isinstance(d, int) for d in grown) and b.chance(0.6):
        return b.constant(b.numbers_of(x.dtype, [d for d in grown if isinstance(d, int)]))
    return b.input(x.dtype, grown)


def suits(a: Value, b: Value) -> bool:
    """Whether two shapes broadcast."""
    pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
    return all(x in (y, 1) or y == 1 for x, y in pairs)


def binary(b: Builder) -> Value:
    """A map of two broadcast float operands, in either order."""
    x = b.real()
    y = companion(b, x)
    op = b.random.choices(BINARY, (6, 6, 4, 3, 1, 1, 1, 0.4, 0.4, 0.4))[0]
    if op == "Pow":
        exponent = b.random.choice((2.0, 3.0, 0.5, 1.0, 4.0, -1.0, 0.0))
        return b.node("Pow", [x, b.constant(np.asarray(exponent, x.dtype))])
    if op == "Div" and b.chance(0.7):
        y = b.node("Add", [b.node("Abs", [y]), b.constant(np.asarray(0.5, x.dtype))])
    if op == "PRelu":
        return b.node(op, [x, y])
    return b.node(op, [x, y] if b.chance(0.6) else [y, x])


def affine(b: Builder) -> Value:
    """Scale and shift by constants, in chains that rules merge."""
    x = b.real()
    for _ in range(b.random.randint(1, 3)):
        shape = [d if isinstance(d, int) and b.chance(0.5) else 1 for d in x.shape]
        c = b.numbers_of(x.dtype, shape[b.random.randint(0, x.rank) :])
        if b.chance(0.3):
            c = np.asarray(b.random.choice((0.0, 1.0, 2.0, -0.5, 4.0)), x.dtype)
        op = b.random.choice(("Add", "Mul", "Sub", "Div", "Mul"))
        if op == "Div":
            c = np.asarray(np.abs(c) + np.asarray(0.5, x.dtype), x.dtype)
        args = [x, b.constant(c)]
        x = b.node(op, args if b.chance(0.7) else args[::-1])
    return x


def clip(b: Builder) -> Value:
    """Clip with both, one or no bound."""
    x = b.real()
    low = b.constant(np.asarray(-0.5, x.dtype)) if b.chance(0.7) else None
    high = b.constant(np.asarray(0.75, x.dtype)) if b.chance(0.7) else None
    return b.node("Clip", [x, low, high])


def condition(b: Builder) -> Value:
    """A bool value: existing, a comparison, or an operation on bools."""
    bools = [v for v in b.values if v.dtype == "bool"]
    if bools and b.chance(0.4):
        v = b.random.choice(bools)
        return b.node("Not", [v]) if b.chance(0.3) else v
    if len(bools) > 1 and b.chance(0.2):
        x = b.random.choice(bools)
        y = b.random.choice([v for v in bools if suits(v, x)])
        return b.node(b.random.choice(("And", "Or", "Xor")), [x, y])
    x = b.real()
    if b.chance(0.1):
        return b.node(b.random.choice(("IsNaN", "IsInf")), [x])
    return b.node(b.random.choice(COMPARE), [x, companion(b, x)])


def where(b: Builder) -> Value:
    """A choice between two float operands."""
    c = condition(b)
    x = companion(b, Value("", "float32", c.shape))
    y = companion(b, Value("", "float32", c.shape))
    if b.chance(0.3):
        y = b.constant(np.asarray(b.random.choice((0.0, -1e9, 1.0)), np.float32))
    return b.node("Where", [c, x, y] if b.chance(0.5) else [c, y, x])


def cast(b: Builder) -> Value:
    """A conversion between any two types; floats to integers mostly inside the range."""
    x = b.pick()
    to = b.random.choice((*b.dtypes, "float32", "int32", "int64", "bool", "int8", "uint8"))
    if to == "uint8":
        if x.dtype in INTEGERS or x.is_float:
            x = b.node("Abs", [x])
    if x.is_float and to in INTEGERS:
        x = b.node("Clip", [x, *(b.constant(np.asarray(n, x.dtype)) for n in (-100, 100))])
    return b.node("Cast", [x], to=CODES[to])


def integers(b: Builder) -> Value:
    """Arithmetic on integers, wrapping included."""
    kinds = [v for v in b.values if v.dtype in INTEGERS]
    dtype = b.random.choice(INTEGERS)
    x = b.random.choice(kinds) if kinds and b.chance(0.6) else None
    if x is None:
        x = b.input(dtype, [b.extent(9) for _ in range(b.random.randint(0, 3))])
    y = companion(b, x)
    op = b.random.choice(("Add", "Mul", "Sub", "Max", "Min", "Abs", "Neg", "Div", "Mod", "Sign"))
    if op in ("Abs", "Neg", "Sign"):
        return b.node(op, [x])
    if op in ("Div", "Mod"):
        low, shape = 1, [d if isinstance(d, int) else 1 for d in y.shape]
        y = b.constant(np.asarray(b.numbers.integers(low, 6, shape)).astype(x.dtype))
        if op == "Div" and x.dtype not in ("uint8",):
            x = b.node("Abs", [x])
        return b.node(op, [x, y], fmod=int(b.chance(0.3))) if op == "Mod" else b.node(op, [x, y])
    return b.node(op, [x, y])


def axes_of(b: Builder, x: Value) -> list[int]:
    """Some axes, negative ones among them."""
    chosen = [k for k in range(x.rank) if b.chance(0.45)] or [b.random.randrange(x.rank)]
    return [k - x.rank if b.chance(0.3) else k for k in chosen]


def axis_of(b: Builder, x: Value) -> int:
    """One axis, perhaps counted from the end."""
    if not x.rank:
        raise Unfit
    axis = b.random.randrange(x.rank)
    return axis - x.rank if b.chance(0.4) else axis


def reduce(b: Builder) -> Value:
    """A fold over any axes, kept or not; axes as an input where the opset wants it."""
    x = b.real(1)
    op = b.random.choices(REDUCE, (5, 5, 4, 2, 1, 1, 1, 1, 1, 0.3))[0]
    if op == "ReduceLogSum":
        x = b.node("Exp", [x])
    keep = int(b.chance(0.6))
    if b.chance(0.1):
        return b.node(op, [x], keepdims=keep)
    if b.opset >= 18 or (op == "ReduceSum" and b.opset >= 13):
        return b.node(op, [x, b.ints(axes_of(b, x))], keepdims=keep)
    return b.node(op, [x], axes=axes_of(b, x), keepdims=keep)


def softmax(b: Builder) -> Value:
    """Softmax, LogSoftmax or Hardmax along any axis."""
    x = b.real(1)
    op = b.random.choices(("Softmax", "LogSoftmax", "Hardmax"), (5, 1, 0.5))[0]
    return b.node(op, [x], axis=axis_of(b, x))


def arg(b: Builder) -> Value:
    """ArgMax, ArgMin."""
    x = b.real(1)
    op = b.random.choice(("ArgMax", "ArgMin"))
    last = int(b.chance(0.2))
    return b.node(op, [x], axis=axis_of(b, x), keepdims=int(b.chance(0.5)), select_last_index=last)


def cumsum(b: Builder) -> Value:
    """CumSum in all four ways."""
    x = b.real(1)
    axis = b.constant(np.asarray(axis_of(b, x), np.int64))
    return b.node("CumSum", [x, axis], exclusive=int(b.chance(0.4)), reverse=int(b.chance(0.4)))


def topk(b: Builder) -> Value:
    """TopK, both results."""
    x = b.real(1)
    axis = axis_of(b, x)
    extent = x.shape[axis]
    most = min(4, extent) if isinstance(extent, int) else 1
    k = b.ints([b.random.randint(1, most)])
    return b.many("TopK", [x, k], 2, axis=axis, largest=int(b.chance(0.6)))[0]


def transpose(b: Builder) -> Value:
    """Any order of axes."""
    x = b.pick(lambda v: v.rank >= 1)
    perm = list(range(x.rank))
    b.random.shuffle(perm)
    return b.node("Transpose", [x], perm=perm) if b.chance(0.9) else b.node("Transpose", [x])


def reshape(b: Builder) -> Value:
    """Flatten, merge or split axes, with 0 and -1; Squeeze and Unsqueeze."""
    x = b.pick()
    form = b.random.randrange(6)
    if form == 0 and x.rank:
        return b.node("Flatten", [x], axis=b.random.randint(0, x.rank))
    if form == 1 and x.rank < 5:
        return b.node("Unsqueeze", [x, b.ints([b.random.randint(-x.rank - 1, x.rank)])])
    ones = [k for k, d in enumerate(x.shape) if d == 1]
    if form == 2 and ones:
        return b.node("Squeeze", [x, b.ints([b.random.choice(ones)])])
    return b.node("Reshape", [x, b.ints(target_shape(b, x))])


def target_shape(b: Builder, x: Value) -> Sequence[int]:
    """What Reshape may be given."""
    symbolic = [k for k, d in enumerate(x.shape) if not isinstance(d, int)]
    if len(symbolic) > 1 or not x.rank:
        return [-1]
    if x.fixed and b.chance(0.7):
        factors: list[int] = []
        rest = x.size()
        while rest > 1 and len(factors) < 4:
            divisor = b.random.choice([d for d in range(1, rest + 1) if rest % d == 0])
            factors.append(divisor)
            rest //= divisor
        factors.append(rest)
        b.random.shuffle(factors)
        if b.chance(0.3):
            factors[b.random.randrange(len(factors))] = -1
        return factors
    if symbolic:
        k = symbolic[0]
        after = [d for d in x.shape[k + 1 :] if isinstance(d, int)]
        merged = int(np.prod(after)) if after else 1
        return [*(0 for _ in range(k)), -1, merged] if b.chance(0.5) else [-1, merged]
    return [-1, x.shape[-1]] if isinstance(x.shape[-1], int) else [-1]


def sliced(b: Builder) -> Value:
    """Slices along some axes, negative steps and bounds beyond the extent included."""
    x = b.pick(lambda v: v.rank >= 1)
    axes = sorted({k % x.rank for k in axes_of(b, x)})
    starts, ends, steps = list[int](), list[int](), list[int]()
    for axis in axes:
        extent = x.shape[axis]
        n = extent if isinstance(extent, int) else 1
        step = b.random.choice((1, 1, 1, 2, 3, -1, -2))
        first = b.random.randrange(n)
        if step > 0:
            last = b.random.choice((2**31, first + 1, n, -1 if first < n - 1 else n))
        else:
            last = b.random.choice((-(2**31), first - n - 1))
        starts.append(first - n if b.chance(0.2) and isinstance(extent, int) else first)
        ends.append(last)
        steps.append(step)
    return b.node("Slice", [x, b.ints(starts), b.ints(ends), b.ints(axes), b.ints(steps)])


def concat(b: Builder) -> Value:
    """Two to four parts that differ in one axis at most."""
    x = b.pick(lambda v: v.rank >= 1)
    axis = b.random.randrange(x.rank)
    parts = [x]
    for _ in range(b.random.randint(1, 3)):
        alike = [v for v in b.values if v.dtype == x.dtype and joins(v, x, axis)]
        if b.chance(0.7):
            parts.append(b.random.choice(alike))
        else:
            shape = list(x.shape)
            shape[axis] = b.extent(5)
            parts.append(b.input(x.dtype, shape))
    b.random.shuffle(parts)
    return b.node("Concat", parts, axis=axis - x.rank if b.chance(0.3) else axis)


def joins(v: Value, x: Value, axis: int) -> bool:
    """Whether two values differ at most along an axis."""
    if v.rank != x.rank:
        return False
    return all(k == axis or a == c for k, (a, c) in enumerate(zip(v.shape, x.shape, strict=False)))


def split(b: Builder) -> Value:
    """Uneven parts."""
    x = b.pick(lambda v: any(isinstance(d, int) and d > 1 for d in v.shape))
    axis = b.random.choice([k for k, d in enumerate(x.shape) if isinstance(d, int) and d > 1])
    extent = x.shape[axis]
    assert isinstance(extent, int)
    first = b.random.randint(1, extent - 1)
    sizes = [first, extent - first]
    return b.many("Split", [x, b.ints(sizes)], 2, axis=axis)[b.random.randrange(2)]


def pad(b: Builder) -> Value:
    """All modes; negative pads now and then."""
    x = b.real(1, 4)
    mode = b.random.choice(("constant", "constant", "reflect", "edge"))
    most = [d if isinstance(d, int) else 1 for d in x.shape]
    sides = [b.random.randint(0, 2) if b.chance(0.6) else 0 for _ in range(2 * x.rank)]
    if mode == "reflect":
        sides = [min(s, most[k % x.rank] - 1) for k, s in enumerate(sides)]
    if mode == "constant" and b.chance(0.2):
        k = b.random.randrange(2 * x.rank)
        sides[k] = -1 if most[k % x.rank] > 2 else 0
    value = b.constant(np.asarray(b.random.choice((0.0, 0.0, 1.5)), x.dtype))
    args = [x, b.ints(sides)] + ([value] if mode == "constant" and b.chance(0.7) else [])
    return b.node("Pad", args, mode=mode)


def expand(b: Builder) -> Value:
    """Expand or Tile."""
    x = b.pick(lambda v: v.size() <= 2000)
    if b.chance(0.4) and x.rank:
        repeats = [b.random.choice((1, 1, 2, 3)) for _ in range(x.rank)]
        return b.node("Tile", [x, b.ints(repeats)])
    shape = [b.extent(5) if d == 1 and b.chance(0.7) else 1 for d in x.shape]
    if b.chance(0.3) and x.rank < 5:
        shape = [b.extent(3), *shape]
    return b.node("Expand", [x, b.ints(shape or [1])])


def gather(b: Builder) -> Value:
    """Gather, GatherElements, GatherND with indices from data or constants, negative ones too."""
    x = b.pick(lambda v: v.rank >= 1 and v.fixed)
    axis = b.random.randrange(x.rank)
    n = x.shape[axis]
    assert isinstance(n, int)
    form = b.random.randrange(3)
    if form == 0:
        shape = [b.extent(5) for _ in range(b.random.randint(0, 2))]
        return b.node("Gather", [x, index(b, shape, n)], axis=axis)
    if form == 1:
        shape = [d for d in x.shape if isinstance(d, int)]
        shape[axis] = b.extent(5)
        return b.node("GatherElements", [x, index(b, shape, n)], axis=axis)
    least = min(d for d in x.shape if isinstance(d, int))
    width = b.random.randint(1, x.rank)
    return b.node("GatherND", [x, index(b, [b.extent(5), width], least)])


def index(b: Builder, shape: Sequence[int], n: int) -> Value:
    """Indices into an axis of n elements."""
    if b.chance(0.5):
        return b.input("int64", shape, (-n, n))
    return b.constant(np.asarray(b.numbers.integers(-n, n, tuple(shape))))


def scatter(b: Builder) -> Value:
    """ScatterElements and ScatterND at distinct places, or with a reduction."""
    x = b.pick(lambda v: v.rank >= 1 and v.fixed and v.dtype == "float32" and v.size() < 5000)
    shape = [d for d in x.shape if isinstance(d, int)]
    how: dict[str, Any] = {"reduction": b.random.choice(("add", "mul"))} if b.chance(0.4) else {}
    if b.opset < 16:
        how = {}
    if b.chance(0.5):
        axis = b.random.randrange(x.rank)
        count = b.random.randint(1, shape[axis])
        size = [*shape[:axis], count, *shape[axis + 1 :]]
        order = np.argsort(b.numbers.random(shape), axis=axis).take(range(count), axis=axis)
        places = b.constant(order - (shape[axis] if b.chance(0.3) else 0))
        return b.node("ScatterElements", [x, places, b.input("float32", size)], axis=axis, **how)
    rows = b.numbers.permutation(shape[0])[: b.random.randint(1, shape[0])]
    updates = b.input("float32", [len(rows), *shape[1:]])
    return b.node("ScatterND", [x, b.constant(rows.reshape(-1, 1)), updates], **how)


def odd(b: Builder) -> Value:
    """Trilu, OneHot, DepthToSpace, SpaceToDepth, ReverseSequence, Shape arithmetic, EyeLike."""
    form = b.random.randrange(6)
    if form == 0:
        x = b.real(2)
        k = b.constant(np.asarray(b.random.randint(-2, 2), np.int64))
        return b.node("Trilu", [x, k], upper=int(b.chance(0.5)))
    if form == 1:
        depth = b.random.randint(2, 6)
        shape = [b.extent(5) for _ in range(b.random.randint(0, 2))]
        values = b.constant(np.asarray([0.25, 1.5], np.float32))
        args = [index(b, shape, depth), b.ints([depth]), values]
        return b.node("OneHot", args, axis=b.random.randint(-1, len(shape)))
    if form == 2:
        x = b.input("float32", [b.extent(2), 4 * b.extent(3), b.extent(4), b.extent(4)])
        mode = b.random.choice(("DCR", "CRD"))
        return b.node("DepthToSpace", [x], blocksize=2, mode=mode)
    if form == 3:
        x = b.input("float32", [1, b.extent(5), 2 * b.extent(4), 2 * b.extent(4)])
        return b.node("SpaceToDepth", [x], blocksize=2)
    if form == 4:
        x = b.pick(lambda v: v.rank >= 1)
        shape = b.node("Shape", [x])
        return b.node(
            "Mul", [b.node("Cast", [shape], to=1), b.constant(np.asarray([0.5], np.float32))]
        )
    x = b.real(1)
    n = b.node("Gather", [b.node("Shape", [x]), b.constant(np.asarray(0))], axis=0)
    one = [b.constant(np.asarray(k)) for k in (0, 1)]
    return b.node("Range", [one[0], n, one[1]])


def repeated(b: Builder) -> Value:
    """The same expression twice, so that it becomes one."""
    x = b.real()
    first, second = b.node("Sigmoid", [x]), b.node("Sigmoid", [x])
    y = b.node("Mul", [x, first])
    return b.node("Add", [y, b.node("Exp", [second])]) if b.chance(0.5) else y
