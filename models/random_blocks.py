"""Random contractions, normalisations, attention, recurrences and regions.

Not here: single maps and reindexing (random_nodes.py), windows (random_windows.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from models import random_nodes as nodes
from models import random_windows as windows
from models.random_graph import CODES, Builder, Extent, Unfit, Value

VECTORS = ("Add", "Mul", "Sub")


def matmul(b: Builder) -> Value:
    """MatMul of any ranks: vectors, broadcast batches, transposed operands, products of two inputs."""
    x = b.real(1, 4)
    depth = x.shape[-1]
    cols = b.extent(33)
    if not isinstance(depth, int):
        other: list[Extent] = [depth, cols]
        return b.node("MatMul", [x, b.input(x.dtype, other)])
    form = b.random.randrange(6)
    if form == 0:
        return b.node("MatMul", [x, b.weight(x.dtype, [depth])])
    if form == 1:
        if x.rank < 2 or not isinstance(x.shape[-2], int):
            raise Unfit
        turned = b.node("Transpose", [x], perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
        return b.node("MatMul", [turned, b.weight(x.dtype, [x.shape[-2], cols])])
    if form == 2 and x.rank > 2 and all(isinstance(d, int) for d in x.shape[:-2]):
        batch = [d if b.chance(0.6) else 1 for d in x.shape[:-2] if isinstance(d, int)]
        return b.node("MatMul", [x, b.weight(x.dtype, [*batch, depth, cols])])
    if form == 3 and x.rank > 1:
        perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        return b.node("MatMul", [x, b.node("Transpose", [x], perm=perm)])
    if form == 4 and x.rank == 1:
        return b.node("MatMul", [b.weight(x.dtype, [cols, b.extent(3), depth]), x])
    if form == 4 and x.rank == 2 and isinstance(x.shape[0], int):
        return b.node("MatMul", [b.weight(x.dtype, [b.extent(3), cols, x.shape[0]]), x])
    y = b.node("MatMul", [x, b.weight(x.dtype, [depth, cols], depth**-0.5)])
    return epilogue(b, y, cols)


def epilogue(b: Builder, y: Value, cols: int) -> Value:
    """Bias, scale, activation or residual behind a contraction, some of the time."""
    if b.chance(0.4):
        args = [y, b.constant(b.numbers_of(y.dtype, [cols]))]
        y = b.node(b.random.choice(VECTORS), args if b.chance(0.6) else args[::-1])
    if b.chance(0.3):
        y = b.node(b.random.choice(nodes.UNARY[:8]), [y])
    if b.chance(0.3):
        y = b.node(b.random.choice(VECTORS), [y, nodes.companion(b, y)])
    return y


def gemm(b: Builder) -> Value:
    """Gemm with all flags and every shape of C."""
    x = b.real(2, 2)
    ta, tb = b.chance(0.3), b.chance(0.5)
    rows, depth = x.shape[::-1] if ta else x.shape
    if not isinstance(depth, int):
        raise Unfit
    cols = b.extent(33)
    w = b.weight(x.dtype, [cols, depth] if tb else [depth, cols])
    args = [x, w]
    if b.chance(0.7):
        shapes: list[list[int]] = [[cols], [1, cols], [1], []]
        if isinstance(rows, int):
            shapes += [[rows, 1], [rows, cols]]
        args.append(b.weight(x.dtype, b.random.choice(shapes)))
    y = b.node(
        "Gemm",
        args,
        transA=int(ta),
        transB=int(tb),
        alpha=b.random.choice((1.0, 0.5, 2.0)),
        beta=b.random.choice((1.0, 0.25, 0.0)),
    )
    return epilogue(b, y, cols)


def einsum(b: Builder) -> Value:
    """A few equations over fresh operands."""
    n = [b.extent(8) for _ in range(5)]
    sizes = dict(zip("abcde", n, strict=True))
    equation = b.random.choice(
        (
            "ab,bc->ac",
            "abc,acd->abd",
            "abc,abd->acd",
            "ab,ab->a",
            "abc,cd->abd",
            "abcd,aecd->abe",
            "ab,cb->ca",
            "aab->ab",
            "abc->ca",
            "ab,bc,cd->ad",
        )
    )
    terms = equation.split("->")[0].split(",")
    args = [b.input("float32", [sizes[c] for c in term]) for term in terms]
    return b.node("Einsum", args, equation=equation)


def norm(b: Builder) -> Value:
    """Batch, layer, instance, group and RMS normalisation, whole or written out."""
    form = b.random.randrange(6)
    if form == 0:
        x = windows.image(b)
        assert isinstance(x.shape[1], int)
        return windows.batchnorm_of(b, x, x.shape[1])
    if form == 1:
        x = windows.image(b)
        args = [x, *(b.weight("float32", [int(str(x.shape[1]))]) for _ in range(2))]
        return b.node("InstanceNormalization", args)
    x = b.real(1, 4, "float32")
    axis = b.random.randrange(x.rank)
    if not all(isinstance(d, int) for d in x.shape[axis:]):
        raise Unfit
    sizes = [d for d in x.shape[axis:] if isinstance(d, int)]
    if form == 2 and b.opset >= 17:
        args = [x, b.weight("float32", sizes)]
        args += [b.weight("float32", sizes)] if b.chance(0.6) else []
        return b.node("LayerNormalization", args, axis=axis)
    if form == 3:
        return b.node("LpNormalization", [x], axis=axis, p=b.random.choice((1, 2)))
    if form == 4:
        x = windows.image(b)
        return b.node("LRN", [x], size=b.random.choice((3, 5)), bias=1.5)
    return written_norm(b, x, axis - x.rank)


def written_norm(b: Builder, x: Value, axis: int) -> Value:
    """Layer normalisation from parts."""
    axes = list(range(axis, 0))

    def mean(v: Value) -> Value:
        if b.opset >= 18:
            return b.node("ReduceMean", [v, b.ints(axes)])
        return b.node("ReduceMean", [v], axes=axes)

    d = b.node("Sub", [x, mean(x)])
    two = b.constant(np.asarray(2, np.float32))
    square = b.node("Pow", [d, two]) if b.chance(0.5) else b.node("Mul", [d, d])
    eps = b.constant(np.asarray(1e-5, np.float32))
    root = b.node("Sqrt", [b.node("Add", [mean(square), eps])])
    return (
        b.node("Div", [d, root])
        if b.chance(0.6)
        else b.node("Mul", [d, b.node("Reciprocal", [root])])
    )


def attention(b: Builder) -> Value:
    """softmax(scale Q K^T + mask) V with masks of several forms, shared or repeated heads."""
    lead: list[Extent] = [b.random.choice((1, 2, 3)) for _ in range(b.random.choice((0, 1, 2, 2)))]
    if lead and b.symbolic:
        lead[0] = "N"
    rows, keys, width = b.extent(17), b.extent(33), b.random.choice((1, 2, 4, 8, 16, 5))
    values = width if b.chance(0.7) else b.extent(9)
    q = b.input("float32", [*lead, rows, width])
    k = b.input("float32", [*lead, keys, width])
    v = b.input("float32", [*lead, keys, values])
    b.finite |= {q.name, k.name, v.name}  # a hidden score counts here if it is infinite
    if b.chance(0.3):
        k = b.node("Identity", [q]) if rows == keys else k
    if b.chance(0.3):
        q = b.node("Mul", [q, b.constant(np.asarray(0.5, np.float32))])
    rank = len(lead) + 2
    turned = b.node("Transpose", [k], perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = b.node("MatMul", [q, turned])
    if b.chance(0.7):
        op, number = b.random.choice((("Mul", 0.3), ("Div", 2.0), ("Div", 2.5)))
        scores = b.node(op, [scores, b.constant(np.asarray(number, np.float32))])
    if b.chance(0.7):
        scores = masked(b, scores, lead, rows, keys)
    weights = b.node("Softmax", [scores], axis=-1 if b.chance(0.9) else rank - 2)
    y = b.node("MatMul", [weights, v])
    if b.chance(0.3):
        y = b.node("Mul", [y, nodes.companion(b, y)])
    return y


def masked(b: Builder, scores: Value, lead: list[Extent], rows: int, keys: int) -> Value:
    """A causal, padding, additive or multiplicative mask, from inputs, constants or positions."""
    form = b.random.randrange(6)
    low = b.random.choice((-1e9, -1e4, -10000.0, float("-inf"), -3.0))
    if form == 0:
        shape: list[Extent] = [d if b.chance(0.5) else 1 for d in (*lead, rows, keys)]
        return b.node("Add", [scores, b.input("float32", shape)])
    if form == 1:
        shape = [d if b.chance(0.7) else 1 for d in (*lead, rows, keys)]
        keep = b.input("bool", shape)
        fill = b.constant(np.asarray(-1e9 if np.isinf(low) else low, np.float32))
        return b.node("Where", [keep, scores, fill] if b.chance(0.6) else [keep, fill, scores])
    if form == 2:
        causal = np.where(
            np.tril(np.ones((rows, keys)), b.random.choice((0, keys - rows, 1))), 0, low
        )
        return b.node("Add", [scores, b.constant(causal.astype(np.float32))])
    if form == 3:
        ones = b.constant(np.ones((rows, keys), np.float32))
        kept = b.node(
            "Trilu", [ones, b.constant(np.asarray(b.random.choice((0, keys - rows))))], upper=0
        )
        flag = b.node("Cast", [kept], to=TensorProto.BOOL)
        fill = b.constant(np.asarray(low, np.float32))
        return b.node("Where", [flag, scores, fill])
    if form == 4:
        shape = [*(1 if len(lead) > 1 and k else d for k, d in enumerate(lead)), 1, keys]
        keep = b.node("Cast", [b.input("int64", shape, (0, 2))], to=1)
        hidden = b.node("Sub", [b.constant(np.asarray(1, np.float32)), keep])
        return b.node(
            "Add", [scores, b.node("Mul", [hidden, b.constant(np.asarray([-1e4], np.float32))])]
        )
    return b.node("Mul", [scores, nodes.companion(b, scores)])


def heads(b: Builder) -> Value:
    """Multi-head self-attention from one input: projections, reshape, transpose, back."""
    batch: Extent = "N" if b.symbolic else b.extent(3)
    length: Extent = "S" if b.symbolic and b.chance(0.6) else b.extent(17)
    count, width = b.random.choice((1, 2, 3)), b.random.choice((4, 8, 5))
    hidden = count * width
    x = b.input("float32", [batch, length, hidden])

    def projected() -> Value:
        w = b.constant(b.numbers_of("float32", [hidden, hidden], hidden**-0.5))
        y = b.node("MatMul", [x, w])
        if b.chance(0.5):
            y = b.node("Add", [y, b.constant(b.numbers_of("float32", [hidden]))])
        return b.node("Reshape", [y, b.ints([0, 0 if b.chance(0.5) else -1, count, width])])

    q = b.node("Transpose", [projected()], perm=[0, 2, 1, 3])
    k = b.node("Transpose", [projected()], perm=[0, 2, 3, 1])
    v = b.node("Transpose", [projected()], perm=[0, 2, 1, 3])
    scores = b.node("MatMul", [q, k])
    scores = b.node("Mul", [scores, b.constant(np.asarray(width**-0.5, np.float32))])
    if b.chance(0.5) and isinstance(length, int):
        scores = masked(b, scores, [batch, count], length, length)
    mixed = b.node("MatMul", [b.node("Softmax", [scores], axis=-1), v])
    back = b.node("Transpose", [mixed], perm=[0, 2, 1, 3])
    y = b.node("Reshape", [back, b.ints([0, 0, hidden])])
    return b.node("Add", [y, x]) if b.chance(0.5) else y


def recurrent(b: Builder) -> Value:
    """LSTM, GRU and RNN in both directions with optional bias, lengths, states."""
    op, gates = b.random.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    length, batch, width, hidden = b.extent(7), b.extent(3), b.extent(8), b.extent(8)
    direction = b.random.choice(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    args: list[Value | None] = [
        b.input("float32", [length, batch, width]),
        b.constant(b.numbers_of("float32", [ways, gates * hidden, width], 0.5)),
        b.constant(b.numbers_of("float32", [ways, gates * hidden, hidden], 0.5)),
        b.constant(b.numbers_of("float32", [ways, 2 * gates * hidden])) if b.chance(0.7) else None,
        b.input("int32", [batch], (1, length + 1)) if b.chance(0.3) else None,
        b.input("float32", [ways, batch, hidden]) if b.chance(0.4) else None,
    ]
    if op == "LSTM" and b.chance(0.3):
        args.append(b.input("float32", [ways, batch, hidden]))
    options: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        options["linear_before_reset"] = int(b.chance(0.5))
    return b.many(op, args, 3 if op == "LSTM" else 2, **options)[0]


def branch(b: Builder) -> Value:
    """If on a fact about data; both branches read outer values."""
    x = b.pick(lambda v: v.dtype == "float32" and v.rank > 0)
    axes = list(range(x.rank))
    total = b.node("ReduceSum", [x, b.ints(axes)], keepdims=0)
    flag = b.node("Greater", [total, b.constant(np.asarray(0.1, np.float32))])
    results: list[Any] = []
    for k, op in enumerate(b.random.sample(("Relu", "Neg", "Tanh", "Exp"), 2)):
        name = b.fresh()
        body = [helper.make_node(op, [x.name], [f"{name}_a"], f"{name}_a")]
        last = b.random.choice((f"{name}_a", x.name))
        body.append(helper.make_node("Add", [f"{name}_a", last], [name], name))
        info = helper.make_tensor_value_info(name, CODES[x.dtype], None)
        results.append(helper.make_graph(body, f"branch{k}_{name}", [], [info]))
    node = helper.make_node("If", [flag.name], [b.fresh()], b.fresh())
    for key, region in zip(("then_branch", "else_branch"), results, strict=True):
        node.attribute.append(helper.make_attribute(key, region))
    b.nodes.append(node)
    made = Value(node.output[0], x.dtype, x.shape)
    b.values.append(made)
    return made


def loop(b: Builder) -> Value:
    """Loop with a trip count and a data-dependent condition, one carried value, a scan output."""
    x = b.pick(lambda v: v.dtype == "float32" and v.size() <= 2000 and v.rank > 0)
    trips = b.constant(np.asarray(b.random.randint(1, 4), np.int64))
    going = b.constant(np.asarray(True))
    n = b.fresh()
    axes, limit = b.ints(list(range(x.rank))), b.constant(np.asarray(50.0, np.float32))
    until = b.chance(0.5)
    body = [
        helper.make_node(b.random.choice(("Tanh", "Sin")), [f"{n}_c"], [f"{n}_t"]),
        helper.make_node("Add", [f"{n}_t", x.name], [f"{n}_n"]),
        helper.make_node("ReduceSum", [f"{n}_n", axes.name], [f"{n}_s"], keepdims=0),
        helper.make_node("Less", [f"{n}_s", limit.name], [f"{n}_g"])
        if until
        else helper.make_node("Identity", [f"{n}_i2"], [f"{n}_g"]),
    ]
    shape = list(x.shape)
    info = helper.make_tensor_value_info
    region = helper.make_graph(
        body,
        f"body_{n}",
        [
            info(f"{n}_i", TensorProto.INT64, []),
            info(f"{n}_i2", TensorProto.BOOL, []),
            info(f"{n}_c", TensorProto.FLOAT, shape),
        ],
        [info(f"{n}_g", TensorProto.BOOL, []), info(f"{n}_n", TensorProto.FLOAT, shape)]
        + ([] if until else [info(f"{n}_t", TensorProto.FLOAT, shape)]),
    )
    names = [b.fresh() for _ in range(1 if until else 2)]
    node = helper.make_node("Loop", [trips.name, going.name, x.name], names, n)
    node.attribute.append(helper.make_attribute("body", region))
    b.nodes.append(node)
    made = Value(names[0], x.dtype, x.shape)
    b.values.append(made)
    if not until:
        count = int(b.constants[trips.name])
        b.values.append(Value(names[1], x.dtype, (count, *x.shape)))
    return made


def quantised(b: Builder) -> Value:
    """QuantizeLinear and back, per tensor or per axis."""
    x = b.real(1, 4, "float32")
    kind = b.random.choice((np.uint8, np.int8))
    axis = b.random.randrange(x.rank)
    extent = x.shape[axis]
    if isinstance(extent, int) and b.chance(0.4):
        scale = b.constant(
            np.abs(b.numbers_of("float32", [extent])) * np.float32(0.05) + np.float32(0.02)
        )
        zero = b.constant(b.numbers.integers(0, 9, extent).astype(kind))
        y = b.node("QuantizeLinear", [x, scale, zero], axis=axis)
        return b.node("DequantizeLinear", [y, scale, zero], axis=axis)
    scale, zero = b.constant(np.asarray(0.04, np.float32)), b.constant(np.asarray(3, kind))
    return b.node("DequantizeLinear", [b.node("QuantizeLinear", [x, scale, zero]), scale, zero])


VOCABULARY: dict[Callable[[Builder], object], float] = {
    nodes.unary: 6,
    nodes.chain: 2,
    nodes.binary: 8,
    nodes.affine: 5,
    nodes.clip: 1,
    nodes.where: 2,
    nodes.condition: 1,
    nodes.cast: 2,
    nodes.integers: 2,
    nodes.reduce: 5,
    nodes.softmax: 3,
    nodes.arg: 1,
    nodes.cumsum: 1,
    nodes.topk: 0.7,
    nodes.transpose: 4,
    nodes.reshape: 4,
    nodes.sliced: 3,
    nodes.concat: 3,
    nodes.split: 2,
    nodes.pad: 2,
    nodes.expand: 2,
    nodes.gather: 2,
    nodes.scatter: 1,
    nodes.odd: 2,
    nodes.repeated: 1,
    matmul: 8,
    gemm: 3,
    einsum: 1,
    windows.conv: 8,
    windows.conv_transpose: 2,
    windows.pool: 4,
    norm: 4,
    windows.resize: 1,
    attention: 3,
    heads: 1,
    recurrent: 1,
    branch: 0.7,
    loop: 0.7,
    quantised: 0.7,
}
