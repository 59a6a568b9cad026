"""Tidying: constants folded, conversions and repetitions that change nothing removed."""

from __future__ import annotations

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.dtypes import DType, i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Sym
from unistack_aot.base.verdict import No
from unistack_aot.ir.pattern import Uses
from unistack_aot.ops.convert import Convert, Filled
from unistack_aot.ops.core import Extents, Item, constant
from unistack_aot.ops.known import symbolic_value
from unistack_aot.ops.op import Pointwise, TensorOp, broadcast
from unistack_aot.ops.pointwise import Pow, Sqrt
from unistack_aot.ops.reindex import Expand
from unistack_aot.rules.find import (
    Array,
    NodeRule,
    any_,
    find,
    is_constant,
    known,
    known_array,
    multiply,
    number_of,
)
from unistack_aot.rules.signs import unsigned

GROWTH = (
    16 * 1024
)  # elements by which a folded result may exceed its operands: no table is unrolled
HEAVY = 1024 * 1024  # bytes of operands above which only ops that touch each element once are run
CHEAP = frozenset({"core", "pointwise", "reindex", "gather", "quant"})


def _constant_operands(node: Node) -> bool:
    return bool(node.args) and all(is_constant(arg) for arg in node.args)


def _folded(root: Node, uses: Uses) -> Node | No:
    if not isinstance(root.type, TensorType):
        return No("it has several results")
    shape = [d for d in root.tensor.shape if isinstance(d, int)]
    if len(shape) < root.tensor.rank:
        return No("its shape is symbolic")
    arrays = [known_array(arg) for arg in root.args]
    given = sum(a.nbytes for a in arrays)
    if int(np.prod(shape, dtype=np.int64)) > sum(a.size for a in arrays) + GROWTH:
        return No("the result would be much larger than the operands")
    if any(a.nbytes > HEAVY and uses(n) > 1 for n, a in zip(root.args, arrays, strict=True)):
        return No("a large operand is used elsewhere too, so the package would hold it twice")
    if given > HEAVY and root.op.family not in CHEAP:
        return No("evaluating it would take long")
    try:
        value = _evaluated(root, arrays)
    except IRError as fault:
        return No(fault.what)
    return constant(np.asarray(value).astype(root.tensor.dtype.numpy))


def _evaluated(root: Node, arrays: list[Array]) -> Array:
    """In f64 where that only delays rounding."""
    f32_only = root.tensor.dtype.is_float and all(a.dtype == np.float32 for a in arrays)
    if isinstance(root.op, Pointwise) and f32_only and not isinstance(root.op, Convert | Filled):
        arrays = [a.astype(np.float64) for a in arrays]
    with np.errstate(all="ignore"):
        result = root.op.reference(*arrays)
    assert not isinstance(result, tuple)
    return result


def _known(root: Node) -> Node | No:
    if not isinstance(root.type, TensorType) or root.type.dtype.is_float:
        return No("it is no integer tensor")
    value = symbolic_value(root)
    if value is None:
        return No("it depends on data")
    if not any(isinstance(x, Sym) for x in value.flat):
        return constant(value.astype(root.type.dtype.numpy))
    if root.type.dtype is i64 and value.ndim <= 1:
        return Node(Extents(tuple(value.reshape(-1).tolist()), scalar=value.ndim == 0))
    return No("it holds symbolic dimensions in a shape that Extents has not")


def _holds_all(narrow: DType, wide: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if narrow.is_bool or narrow is wide:
        return True
    if narrow.is_float or wide.is_bool:
        if not wide.is_float:
            return False
        exact = {
            "f16": ("f16", "f32", "f64"),
            "bf16": ("bf16", "f32", "f64"),
            "f32": ("f32", "f64"),
        }
        return wide.name in exact.get(narrow.name, ("f64",))
    if wide.is_float:
        return narrow.bits < {"f64": 54, "f32": 25, "f16": 12, "bf16": 9}[wide.name]
    return wide.lowest <= narrow.lowest and wide.highest >= narrow.highest


def _converted_twice(root: Node, mid: Node, x: Node) -> Node | No:
    first, middle, last = x.tensor.dtype, mid.tensor.dtype, root.tensor.dtype
    if not _holds_all(first, middle):
        return No(f"{middle} does not hold every {first}")
    return x if first is last else Node(Convert(last), (x,))


def _unexpanded(root: Node) -> Node | No:
    """Operands broadcast anyway."""
    args = tuple(a.args[0] if isinstance(a.op, Expand) else a for a in root.args)
    if args == root.args:
        return No("no operand is expanded")
    try:
        same = broadcast([a.tensor.shape for a in args]) == root.tensor.shape
    except IRError:
        same = False
    if same:
        return Node(root.op, args)
    for k, arg in enumerate(args):
        if arg is not root.args[k]:
            some = (*root.args[:k], arg, *root.args[k + 1 :])
            if broadcast([a.tensor.shape for a in some]) == root.tensor.shape:
                return Node(root.op, some)
    return No("the result's shape comes from the expanded operand")


def _power(root: Node, x: Node, c: Node) -> Node | No:
    """Small whole powers as products; x ** 0.5 is not sqrt(x) at -0 and -inf."""
    exponent = number_of(c) if c.tensor.dtype.is_float else _whole(c)
    if not x.tensor.dtype.is_float or x.type != root.type:
        return No("the base is no float of the result's shape")
    if exponent == 1:
        return x
    if exponent == 2:
        return multiply(x, x)
    if exponent == 3:
        return multiply(multiply(x, x), x)
    if exponent == 4:
        return multiply(multiply(x, x), multiply(x, x))
    if exponent == 0.5:
        return Node(Sqrt(), (x,)) if unsigned(x) else No("the base may be -0 or -inf")
    return No(f"the exponent is {exponent}")


def _whole(c: Node) -> float | None:
    values = known_array(c).reshape(-1)
    return float(values[0]) if values.size and (values == values[0]).all() else None


def _small_int(node: Node) -> bool:
    kind = node.type
    return isinstance(kind, TensorType) and not kind.dtype.is_float and kind.rank <= 1


def _item(root: Node) -> Node | No:
    source = root.args[0]
    arrays = [known_array(arg) for arg in source.args]
    if sum(a.nbytes for a in arrays) > HEAVY or not isinstance(root.op, Item):
        return No("evaluating it would take long")
    try:
        results = source.op.reference(*arrays)
    except IRError as fault:
        return No(fault.what)
    assert isinstance(results, tuple)
    return constant(results[root.op.k].astype(root.tensor.dtype.numpy))


RULES: tuple[NodeRule, ...] = (
    NodeRule(
        "fold-constants",
        find(TensorOp, name="root", test=_constant_operands),
        _folded,
        counts=True,
        fires=(
            "mul(constant ~1 : f32[2, 3], constant ~2 : f32[3])",
            "transpose(constant ~1 : f32[2, 3]) perm=[1, 0]",
            "convert(constant [1, 2] : i64[2]) to=f32",
        ),
        holds=(
            "expand(constant 1.0 : f32[]) shape=[1000, 1000]",
            "mul(%x: f32[2], constant ~1 : f32[2])",
        ),
    ),
    NodeRule(
        "known-dimensions",
        find(TensorOp, name="root", test=lambda n: not isinstance(n.op, Extents) and _small_int(n)),
        _known,
        fires=("mul(extents() dims=[N, 3], constant 2 : i64[]); %x: f32[N]",),
        holds=("mul(%x: i64[2], constant 2 : i64[])",),
    ),
    NodeRule(
        "convert-twice",
        find(Convert, find(Convert, any_("x"), name="mid"), name="root"),
        _converted_twice,
        needs=("exact",),
        fires=(
            "convert(convert(%x: f16[3]) to=f32) to=f16",
            "convert(convert(%x: i32[3]) to=i64) to=f32",
        ),
        holds=(
            "convert(convert(%x: f32[3]) to=f16) to=f32",
            "convert(convert(%x: i64[3]) to=f32) to=i64",
        ),
    ),
    NodeRule(
        "convert-to-same",
        find(Convert, any_("x"), name="root"),
        lambda root, x: x if x.type == root.type else No("the element type changes"),
        needs=("exact",),
        fires=("convert(%x: f32[3]) to=f32",),
        holds=("convert(%x: f32[3]) to=f16",),
    ),
    NodeRule(
        "expand-before-broadcast",
        find(Pointwise, name="root", test=lambda n: any(isinstance(a.op, Expand) for a in n.args)),
        _unexpanded,
        needs=("pointwise",),
        fires=(
            "add(expand(%x: f32[3, 1]) shape=[2, 3, 4], %y: f32[2, 3, 4])",
            "mul(expand(%x: f32[3, 1]) shape=[3, 4], expand(%y: f32[4]) shape=[3, 4])",
        ),
        holds=("neg(expand(%x: f32[3, 1]) shape=[3, 4])",),
    ),
    NodeRule(
        "small-powers",
        find(Pow, any_("x"), known("c"), name="root"),
        _power,
        fires=(
            "pow(%x: f32[5], constant 2.0 : f32[])",
            "pow(%x: f32[5], constant 3 : i64[])",
            "pow(%x: f32[5], constant 4.0 : f32[])",
            "pow(%x: f32[5], constant 1.0 : f32[])",
            "pow(add(abs(%x: f32[5]), constant 1e-5 : f32[]), constant 0.5 : f32[])",
            "pow(item(moments(%x: f32[2, 5]) axes=[1]) k=1, constant 0.5 : f32[])",
        ),
        holds=(
            "pow(%x: f32[5], constant 0.5 : f32[])",
            "pow(%x: f32[5], constant 2.5 : f32[])",
            "pow(%x: f32[5], constant 2.0 : f32[2, 5])",
        ),
    ),
    NodeRule(
        "item-of-constants",
        find(Item, name="root", test=lambda n: _constant_operands(n.args[0])),
        _item,
        fires=("item(moments(constant ~1 : f32[2, 3]) axes=[1]) k=1",),
        holds=("item(moments(%x: f32[2, 3]) axes=[1]) k=1",),
    ),
)
