"""ONNX operators on attention heads: Attention, RotaryEmbedding. Not here: the op itself."""

from __future__ import annotations

import math

from onnx import TensorProto

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.types import Shape
from unistack_aot.base.dtypes import i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim
from unistack_aot.ops.attention import Attention
from unistack_aot.ops.compare import And, Less, LessOrEqual, Where
from unistack_aot.ops.convert import converted
from unistack_aot.ops.core import constant
from unistack_aot.ops.fold import reduced
from unistack_aot.ops.gather import Gather
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.pointwise import Add, Mul, Sub
from unistack_aot.ops.positions import Progression
from unistack_aot.ops.reindex import reshape, transpose
from unistack_aot.ops.slices import concat, slice_axis


def split_heads(x: Node, heads: int) -> Node:
    """[batch, rows, heads * size] as [batch, heads, rows, size]."""
    batch, rows, width = x.tensor.shape
    return transpose(reshape(x, (batch, rows, heads, width // heads)), (0, 2, 1, 3))


def join_heads(x: Node) -> Node:
    """[batch, heads, rows, size] as [batch, rows, heads * size]."""
    batch, heads, rows, size = x.tensor.shape
    return reshape(transpose(x, (0, 2, 1, 3)), (batch, rows, heads * size))


@onnx("Attention", since=23)
def import_attention(call: OnnxCall) -> tuple[Node, ...]:
    """Scaled dot-product attention with mask, key cache and grouped heads; 3 or 4 axes."""
    if call.attr("softcap", 0.0) != 0:
        raise call.refuse("with softcap", "export the formula as single operators")
    if call.outputs > 3 or call.optional(6) is not None:
        raise call.refuse("with qk_matmul_output or nonpad lengths", "export without them")
    if call.attr("softmax_precision", 0) == TensorProto.DOUBLE:
        raise call.refuse("with a softmax in double precision", "export it with float")
    q, k, v, flat = _heads(call)
    past: Dim = 0
    if call.optional(4) is not None or call.optional(5) is not None:
        past = call.arg(4).tensor.shape[2]
        k, v = concat((call.arg(4), k), 2), concat((call.arg(5), v), 2)
    causal = bool(call.attr("is_causal", 0))
    if causal and k.tensor.shape[2] - q.tensor.shape[2] != past:
        raise call.refuse("causal over more keys than queries", "give the earlier keys as a cache")
    size = q.tensor.shape[3]
    scale = call.attributes.get("scale")
    if scale is None:
        if not isinstance(size, int):
            raise call.refuse("with an unknown head size", "fix that dimension")
        scale = 1 / math.sqrt(size)
    mask = call.optional(3)
    operands = (q, k, v) if mask is None else (q, k, v, additive(mask, q))
    result = Node(Attention(float(scale), causal), operands)
    if mask is not None:
        result = Node(Where(), (_seen(mask, q, k, causal), result, constant(0, result)))
    return (join_heads(result) if flat else result, k, v)[: call.outputs]


def _heads(call: OnnxCall) -> tuple[Node, Node, Node, bool]:
    """Queries, keys and values with an axis of heads, and whether they came without one."""
    q, k, v = (call.arg(n) for n in range(3))
    given = call.attr("q_num_heads", 0), call.attr("kv_num_heads", 0)
    if q.tensor.rank == 3:
        if not all(given):
            raise call.refuse("of three axes without numbers of heads", "the model is malformed")
        queries, keys = given
        return split_heads(q, queries), split_heads(k, keys), split_heads(v, keys), True
    for x, heads in ((q, given[0]), (k, given[1])):
        if heads and x.tensor.shape[1:2] != (heads,):
            raise IRError(f"{heads} heads of {x.tensor}")
    return q, k, v, False


def _seen(mask: Node, q: Node, k: Node, causal: bool) -> Node:
    """Which queries see a key at all: what ONNX gives to the others is 0, where a softmax is NaN."""
    shown = mask
    if not mask.tensor.dtype.is_bool:
        shown = Node(Less(), (constant(-math.inf, mask), mask))
    if causal:
        rows, columns = q.tensor.shape[2], k.tensor.shape[2]
        last = reshape(Node(Progression(columns - rows, 1, rows)), (rows, 1))
        shown = Node(And(), (shown, Node(LessOrEqual(), (Node(Progression(0, 1, columns)), last))))
    return reduced("any", shown, (shown.tensor.rank - 1,))


def additive(mask: Node, like: Node) -> Node:
    """A mask to add to scores: truth values become 0 where they hold and -inf elsewhere."""
    if not mask.tensor.dtype.is_bool:
        return converted(mask, like.tensor.dtype)
    return Node(Where(), (mask, constant(0, like), constant(-math.inf, like)))


@onnx("RotaryEmbedding", since=23)
def import_rotary_embedding(call: OnnxCall) -> Node:
    """Pairs of elements rotated by cached angles; 3 or 4 axes, whole heads or their first part."""
    x, flat = call.arg(0), call.arg(0).tensor.rank == 3
    heads = call.attr("num_heads", 0)
    if flat:
        x = split_heads(x, heads)
    size = x.tensor.shape[3]
    width: Dim = call.attr("rotary_embedding_dim", 0) or size
    cos, sin = (_angles(call, k, x.tensor.shape, width) for k in (1, 2))
    turned = slice_axis(x, 3, 0, width)
    rotate = _rotated_pairs if call.attr("interleaved", 0) else _rotated_halves
    result = rotate(turned, cos, sin)
    if width != size:
        result = concat((result, slice_axis(x, 3, width, size - width)), 3)
    return join_heads(result) if flat else result


def _angles(call: OnnxCall, k: int, shape: Shape, width: Dim) -> Node:
    """The cache's rows for each position, as [batch, 1, rows, width / 2]."""
    cache, positions = call.arg(k), call.optional(3)
    if positions is not None:
        cache = Node(Gather(0), (cache, converted(positions, i64)))
    return reshape(cache, (cache.tensor.shape[0], 1, shape[2], width // 2))


def _turn(a: Node, b: Node, cos: Node, sin: Node) -> tuple[Node, Node]:
    """(a cos - b sin, a sin + b cos)."""
    real = Node(Sub(), (Node(Mul(), (a, cos)), Node(Mul(), (b, sin))))
    return real, Node(Add(), (Node(Mul(), (a, sin)), Node(Mul(), (b, cos))))


def _rotated_halves(x: Node, cos: Node, sin: Node) -> Node:
    half = x.tensor.shape[3] // 2
    parts = _turn(slice_axis(x, 3, 0, half), slice_axis(x, 3, half, half), cos, sin)
    return concat(parts, 3)


def _rotated_pairs(x: Node, cos: Node, sin: Node) -> Node:
    half = x.tensor.shape[3] // 2
    shape = x.tensor.shape
    pairs = reshape(x, (*shape[:3], half, 2))
    column = (*shape[:3], half)
    a, b = (reshape(slice_axis(pairs, 4, k, 1), column) for k in (0, 1))
    real, imaginary = (reshape(part, (*column, 1)) for part in _turn(a, b, cos, sin))
    return reshape(concat((real, imaginary), 4), shape)
