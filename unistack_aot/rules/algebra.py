"""Linear algebra: affine maps folded into contractions or merged. Not here: shared operands (shared.py)."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.properties import affine_in, formula_of
from unistack_aot.base.verdict import No
from unistack_aot.ir.evaluate import evaluate
from unistack_aot.ir.pattern import Uses
from unistack_aot.ir.scalar import Scalar
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.core import constant
from unistack_aot.ops.op import Pointwise, TensorOp
from unistack_aot.ops.pointwise import Add, Div, Mul, Sub
from unistack_aot.rules.find import (
    Array,
    NodeRule,
    add,
    any_,
    find,
    is_constant,
    known,
    known_array,
    multiply,
    number_of,
    rounded,
    wide,
)
from unistack_aot.rules.linearity import Linear, along, linear, scaled_weight
from unistack_aot.rules.signs import never_negative_zero

SHARED = "the weight is used elsewhere too, so the package would hold it twice"


@dataclass(frozen=True)
class Map:
    """A node as scale * inner + shift with constants in f64; None stands for 1 and for 0."""

    inner: Node
    scale: Array | None
    shift: Array | None


def affine_map(node: Node) -> Map | None:
    """A pointwise node as an affine map of its only varying operand; None otherwise."""
    if not isinstance(node.op, Pointwise) or not node.tensor.dtype.is_float:
        return None
    moving = [k for k, arg in enumerate(node.args) if not is_constant(arg)]
    if len(moving) != 1 or node.args[moving[0]].type != node.type:
        return None
    formula = formula_of(node)
    found = None if formula is None else affine_in(formula, moving[0])
    if found is None:
        return None
    arrays = tuple(
        wide(arg) if is_constant(arg) and arg.tensor.dtype.is_float else np.zeros(())
        for arg in node.args
    )

    def value(part: Scalar | None) -> Array | None:
        return None if part is None else np.asarray(evaluate(part, arrays), np.float64)

    return Map(node.args[moving[0]], value(found.scale), value(found.shift))


def _identity(root: Node) -> Node | No:
    found = affine_map(root)
    if found is None:
        return No("it is not an affine map of one operand")
    if found.scale is not None and (found.scale != 1).any():
        return No("it scales")
    if found.shift is not None and (found.shift != 0).any():
        return No("it shifts")
    if _loses_sign(found.shift) and not never_negative_zero(found.inner):
        return No("-0 + 0 is 0: only -0 changes nothing")
    return found.inner


def _loses_sign(shift: Array | None) -> bool:
    """Whether a shift that is zero everywhere turns -0 into +0."""
    return shift is not None and not np.signbit(shift).all()


def _into_linear(root: Node, uses: Uses) -> Node | No:
    """a (L + b) + c = (a L) + (a b + c), where a goes into L's constant operand."""
    outer = affine_map(root)
    if outer is None or outer.scale is None:
        return No("it does not scale one operand by constants")
    if uses(outer.inner) > 1:
        return No("what it scales is used elsewhere, so it would be computed twice")
    shift, below = outer.shift, linear(outer.inner)
    if below is None:
        inner = affine_map(outer.inner)
        below = None if inner is None or inner.scale is not None else linear(inner.inner)
        if inner is None or below is None:
            return No("what it scales is no contraction with a constant operand")
        if uses(inner.inner) > 1:
            return No("the contraction is used elsewhere, so it would be computed twice")
        moved = inner.shift if inner.shift is not None else np.zeros(())
        shift = moved * outer.scale + (0 if shift is None else shift)
    if uses(below.weight) > 1:
        return No(SHARED)
    factor = along(outer.scale, root.tensor.rank, below.result, below.weight)
    if isinstance(factor, No):
        return factor
    weight = scaled_weight(below.weight, factor)
    if isinstance(weight, No):
        return weight
    return _shifted(below.with_operands(below.source, weight), shift)


def _shifted(value: Node, shift: Array | None) -> Node | No:
    if shift is None or not shift.any():
        return value
    vector = rounded(shift, value.tensor.dtype)
    return vector if isinstance(vector, No) else add(value, vector)


def _of_pointwise(node: Node) -> bool:
    """Whether a node is linear in a constant operand, the other being pointwise."""
    found = linear(node) if any(isinstance(arg.op, Pointwise) for arg in node.args) else None
    return found is not None and isinstance(found.source.op, Pointwise)


def _source_map(root: Node, uses: Uses) -> tuple[Linear, Map] | No:
    """The linear map, and the affine map that feeds it and nothing else."""
    found = linear(root)
    inner = None if found is None else affine_map(found.source)
    if found is None or inner is None:
        return No("no affine map feeds a contraction with a constant operand")
    if uses(found.source) > 1:
        return No("the operand is used elsewhere too")
    return found, inner


def _from_source(root: Node, uses: Uses) -> Node | No:
    """L(a x + b) = (L a)(x) + L(b): scales of input channels go into the constant operand."""
    maps = _source_map(root, uses)
    if isinstance(maps, No):
        return maps
    found, inner = maps
    if inner.scale is None:
        return No("it only shifts")
    if uses(found.weight) > 1:
        return No(SHARED)
    factor = along(inner.scale, found.source.tensor.rank, found.data, found.weight)
    if isinstance(factor, No):
        return factor
    weight = scaled_weight(found.weight, factor)
    if isinstance(weight, No):
        return weight
    shift = None if inner.shift is None else _passed(found, inner.shift)
    if isinstance(shift, No):
        return shift
    return _shifted(found.with_operands(inner.inner, weight), shift)


def _shift_from_source(root: Node, uses: Uses) -> Node | No:
    """L(x + b) = L(x) + L(b), where L(b) is a constant no larger than the result's last axes."""
    maps = _source_map(root, uses)
    if isinstance(maps, No):
        return maps
    found, inner = maps
    if inner.scale is not None or inner.shift is None:
        return No("it does more than shift")
    shift = _passed(found, inner.shift)
    if isinstance(shift, No):
        return shift
    return _shifted(found.with_operands(inner.inner, found.weight), shift)


def _passed(found: Linear, shift: Array) -> Array | No:
    """L(b) for a shift b of the operand of a contraction, laid out to be added to the result."""
    op = found.node.op
    if not isinstance(op, Contract):
        return No("a shift does not pass zero padding")
    labels = op.right if found.at == 0 else op.left
    shape = (1,) * (len(labels) - shift.ndim) + shift.shape
    varying = "".join(c for c, extent in zip(labels, shape, strict=True) if extent != 1)
    mine = op.left if found.at == 0 else op.right
    if any(c in op.summed and c not in varying for c in labels) or set(varying) - set(mine):
        return No("the shift does not run along the summed axes alone")
    out = "".join(c for c in op.out if c in mine or c in varying)
    core = shift.reshape([extent for extent in shape if extent != 1])
    moved = np.einsum(f"{varying},{mine}->{out}", core, wide(found.weight))
    sizes = iter(moved.shape)
    return moved.reshape([next(sizes) if c in out else 1 for c in op.out])


def _merged(root: Node, x: Node) -> Node | No:
    """Two shifts are one shift, two scales are one scale."""
    outer, inner = affine_map(root), affine_map(x)
    if outer is None or inner is None or outer.inner is not x:
        return No("they are not two affine maps with constants")
    if outer.scale is None and inner.scale is None:
        one, two, op, neutral = outer.shift, inner.shift, Add(), 0.0
        combined = None if one is None or two is None else one + two
    elif outer.shift is None and inner.shift is None:
        one, two, op, neutral = outer.scale, inner.scale, Mul(), 1.0
        combined = None if one is None or two is None else one * two
    else:
        return No("one scales and the other shifts")
    if one is None or two is None or combined is None:
        return No("one of them changes nothing")
    if combined.size > max(one.size, two.size):
        return No("the merged constant would be larger than both")
    if not np.isfinite(one).all() or not np.isfinite(two).all():
        return No("a constant is not finite")
    if (combined == neutral).all() and (op == Mul() or not _loses_sign(combined)):
        return inner.inner
    vector = rounded(combined, root.tensor.dtype)
    return vector if isinstance(vector, No) else Node(op, (inner.inner, vector))


def _exact_division(root: Node, x: Node, c: Node) -> Node | No:
    """x / c = x * (1 / c), to the last bit, where every element of c is a power of two."""
    values = wide(c) if root.tensor.dtype.is_float else np.zeros(0)
    if not values.size or not np.isfinite(values).all() or (values == 0).any():
        return No("the divisor is not a finite float constant")
    if any(abs(frexp(v)[0]) != 0.5 for v in values.reshape(-1)[:4096]) or values.size > 4096:
        return No("the divisor is no power of two, so a product would round differently")
    inverse = rounded(1 / values, c.tensor.dtype)
    if isinstance(inverse, No) or (1 / wide(inverse) != values).any():
        return No("the inverse is not exact")
    return multiply(x, inverse)


def _as_addition(root: Node, x: Node, c: Node) -> Node | No:
    if not root.tensor.dtype.is_float:
        return No("integers wrap")
    return add(x, constant(-known_array(c)))


def _scale_of_scalar(root: Node, x: Node, c: Node) -> Node | No:
    """One number broadcast over a tensor is kept as a scalar: x * [c, c, ...] = x * c."""
    value = number_of(c)
    if value is None or c.tensor.rank == 0 or x.type != root.type or known_array(c).size == 1:
        return No("the constant is no repeated number")
    return Node(root.op, (x, constant(known_array(c).reshape(-1)[0])))


CONV = "window(kernel=[3, 3], strides=[1, 1], dilations=[1, 1], before=[1, 1], after=[1, 1])"
PLAIN = 'left="ac" right="cb" out="ab"'
RULES: tuple[NodeRule, ...] = (
    NodeRule(
        "identity-map",
        find(Pointwise, name="root"),
        _identity,
        needs=("affine",),
        fires=(
            "mul(%x: f32[2, 3], constant 1.0 : f32[])",
            "add(%x: f32[2, 3], constant [-0.0, -0.0, -0.0] : f32[3])",
            "sub(%x: f32[2, 3], constant 0.0 : f32[])",
            f"add(contract(%x: f32[2, 3], %w: f32[3, 4]) {PLAIN}, constant 0.0 : f32[])",
            "add(mul(%x: f32[3], %x), constant 0.0 : f32[])",
            "div(%x: f16[4], constant 1.0 : f16[])",
        ),
        holds=(
            "mul(%x: f32[2, 3], constant 2.0 : f32[])",
            "mul(%x: f32[3], constant 1.0 : f32[2, 3])",
            "div(constant 1.0 : f32[3], %x: f32[3])",
            "add(%x: f32[2, 3], constant 0.0 : f32[])",
            "sub(%x: f32[2, 3], constant -0.0 : f32[])",
            "add(neg(abs(%x: f32[3])), constant 0.0 : f32[])",
        ),
    ),
    NodeRule(
        "subtract-constant",
        find(Sub, any_("x"), known("c"), name="root"),
        _as_addition,
        needs=("exact",),
        fires=("sub(%x: f32[2, 3], constant ~1 : f32[3])",),
        holds=("sub(%x: i32[3], constant 1 : i32[])", "sub(constant ~1 : f32[3], %x: f32[3])"),
    ),
    NodeRule(
        "repeated-number",
        find((Add, Mul), any_("x"), known("c"), name="root"),
        _scale_of_scalar,
        needs=("exact",),
        fires=("mul(%x: f32[2, 3], constant 2.0 : f32[3])",),
        holds=(
            "mul(%x: f32[1, 3], constant 2.0 : f32[2, 3])",
            "mul(%x: f32[3], constant ~1 : f32[3])",
        ),
    ),
    NodeRule(
        "affine-into-contraction",
        find(Pointwise, name="root"),
        _into_linear,
        needs=("affine", "bilinear"),
        counts=True,
        fires=(
            (
                f"mul(convolve(%x: f32[1, 3, 5, 5], constant ~1 : f32[4, 3, 3, 3]) window={CONV},"
                " constant ~2 : f32[4, 1, 1])"
            ),
            (
                f"div(add(convolve(%x: f32[1, 4, 5, 5], constant ~1 : f32[4, 1, 3, 3]) groups=4"
                f" window={CONV}, constant ~2 : f32[4, 1, 1]), constant 3.0 : f32[])"
            ),
            (
                f"mul(contract(%x: f32[2, 3], constant ~1 : f32[3, 4]) {PLAIN},"
                " constant ~2 : f32[4])"
            ),
        ),
        holds=(
            (
                f"mul(convolve(%x: f32[1, 3, 5, 5], constant ~1 : f32[4, 3, 3, 3]) window={CONV},"
                " constant ~2 : f32[5])"
            ),
            (f"mul(contract(%x: f32[2, 3], %w: f32[3, 4]) {PLAIN}, constant ~2 : f32[4])"),
            (
                f"%h = contract(%x: f32[2, 3], constant ~1 : f32[3, 4]) {PLAIN};"
                " %h; mul(%h, constant ~2 : f32[4])"
            ),
            (
                f"mul(contract(%x: f32[2, 3], constant 1e38 : f32[3, 4]) {PLAIN},"
                " constant 1e10 : f32[])"
            ),
        ),
    ),
    NodeRule(
        "scale-from-operand",
        find(TensorOp, name="root", test=_of_pointwise),
        _from_source,
        needs=("affine", "bilinear"),
        counts=True,
        fires=(
            (
                f"convolve(mul(%x: f32[1, 3, 5, 5], constant ~2 : f32[3, 1, 1]),"
                f" constant ~1 : f32[4, 3, 3, 3]) window={CONV}"
            ),
            (
                "contract(mul(%x: f32[2, 3], constant ~2 : f32[3]), constant ~1 : f32[3, 4])"
                f" {PLAIN}"
            ),
            (
                "contract(sub(constant ~2 : f32[3], %x: f32[2, 3]), constant ~1 : f32[3, 4])"
                f" {PLAIN}"
            ),
        ),
        holds=(
            (
                "contract(mul(%x: f32[2, 3], constant ~2 : f32[2, 1]), constant ~1 : f32[3, 4])"
                f" {PLAIN}"
            ),
            (
                "%w = constant ~1 : f32[3, 4]; %w;"
                f" contract(mul(%x: f32[2, 3], constant ~2 : f32[3]), %w) {PLAIN}"
            ),
            (
                "%h = mul(%x: f32[2, 3], constant ~2 : f32[3]); %h;"
                f" contract(%h, constant ~1 : f32[3, 4]) {PLAIN}"
            ),
        ),
    ),
    NodeRule(
        "shift-from-operand",
        find(TensorOp, name="root", test=_of_pointwise),
        _shift_from_source,
        counts=True,
        needs=("affine", "bilinear", "distributive"),
        fires=(
            (
                "contract(add(%x: f32[2, 3], constant ~2 : f32[3]), constant ~1 : f32[3, 4])"
                f" {PLAIN}"
            ),
        ),
        holds=(
            (
                f"convolve(add(%x: f32[1, 3, 5, 5], constant ~2 : f32[3, 1, 1]),"
                f" constant ~1 : f32[4, 3, 3, 3]) window={CONV}"
            ),
        ),
    ),
    NodeRule(
        "merge-affine",
        find(
            Pointwise, name="root", test=lambda n: any(isinstance(a.op, Pointwise) for a in n.args)
        ),
        lambda root: next(
            (
                found
                for x in root.args
                if isinstance(x.op, Pointwise) and isinstance(found := _merged(root, x), Node)
            ),
            No("its operands are not affine maps of the same kind"),
        ),
        needs=("affine", "associative"),
        fires=(
            "add(add(%x: f32[2, 3], constant ~1 : f32[3]), constant ~2 : f32[3])",
            "neg(neg(%x: f32[2, 3]))",
            "add(add(%x: f32[2, 3], constant 5.0 : f32[]), constant -5.0 : f32[])",
            "div(mul(%x: f32[2, 3], constant 3.0 : f32[]), constant ~2 : f32[3])",
        ),
        holds=(
            "add(mul(%x: f32[2, 3], constant ~1 : f32[3]), constant ~2 : f32[3])",
            "add(add(%x: f32[2, 3], constant ~1 : f32[3]), constant ~2 : f32[2, 1])",
        ),
    ),
    NodeRule(
        "exact-division",
        find(Div, any_("x"), known("c"), name="root"),
        _exact_division,
        needs=("exact",),
        fires=(
            "div(%x: f32[2, 3], constant 8.0 : f32[])",
            "div(%x: f32[2], constant [0.5, -2.0] : f32[2])",
        ),
        holds=("div(%x: f32[2, 3], constant 3.0 : f32[])", "div(%x: i32[3], constant 2 : i32[])"),
    ),
)
