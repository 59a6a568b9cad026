"""Semantic properties, derived from formulas: what rewrites rely on. Not here: rewrites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Op
from unistack_aot.base.dtypes import DType
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import Arg, Call, Cast, Lit, Scalar, children, literal, postorder

PROPERTIES: dict[str, str] = {
    "affine": "f(x) = a x + b with a and b free of x",
    "linear": "f(a x + b y) = a f(x) + b f(y) in one operand, the others held fixed",
    "bilinear": "linear in each of two operands",
    "increasing": "x <= y implies f(x) <= f(y): f passes max and min",
    "zero-preserving": "f(0) = 0: f passes zero padding",
    "homomorphism": "f(x . y) = f(x) * f(y), such as exp(x + y) = exp(x) exp(y)",
    "pointwise": "element i of the result depends on element i of each operand only",
    "moves-elements": "every result element is some operand element, by position alone",
    "shift-invariant": "f(x + c) = f(x) for c constant along the folded axis",
    "associative": "the merge of partial results does not depend on how they are grouped",
    "distributive": "a sum times a factor is the sum of the products",
    "exact": "the value is the same to the last bit",
}


@runtime_checkable
class Formulaic(Protocol):
    """An operation whose meaning is one scalar formula of its operands' elements."""

    def formula(self, dtypes: Sequence[DType]) -> Scalar:
        """The formula over operands of these dtypes."""
        ...


@dataclass(frozen=True)
class Affine:
    """scale * x + shift, both as formulas over the other operands; None stands for 1 and for 0."""

    scale: Scalar | None
    shift: Scalar | None


def formula_of(node: Node) -> Scalar | None:
    """The scalar formula of a pointwise node; None for other nodes."""
    if not isinstance(node.op, Formulaic):
        return None
    return _formula(node.op, tuple(arg.tensor.dtype for arg in node.args))


@lru_cache(1 << 14)
def _formula(op: Op, dtypes: tuple[DType, ...]) -> Scalar | None:
    assert isinstance(op, Formulaic)
    return op.formula(dtypes)


@lru_cache(1 << 14)
def affine_in(formula: Scalar, k: int) -> Affine | None:
    """The formula as an affine map of operand `k`; None where it is not one.

    Floats only. A formula of narrow floats is taken as computed in f32: its last rounding is not
    counted, any other would be.
    """
    if isinstance(formula, Cast) and formula.dtype.is_float and formula.value.dtype.is_float:
        return affine_in(formula.value, k)
    found: dict[Scalar, Affine | None] = {}
    for part in postorder(formula):
        if not _mentions(part, k):
            found[part] = Affine(None, part) if part.dtype.is_float else None
        else:
            found[part] = _affine(part, k, found)
    return found[formula] if _mentions(formula, k) else None


def _affine(part: Scalar, k: int, found: dict[Scalar, Affine | None]) -> Affine | None:
    """One step of `affine_in` for a part that mentions operand `k`."""
    if isinstance(part, Arg):
        return Affine(None, None) if part.dtype.is_float else None
    if isinstance(part, Cast):
        widens = part.dtype.is_float and part.dtype.bits > part.value.dtype.bits
        return found[part.value] if widens else None
    if not isinstance(part, Call):
        return None
    args = [(found[a], _mentions(a, k)) for a in children(part)]
    match part.fn, args:
        case "neg", [(Affine() as x, _)]:
            return Affine(_negated(x.scale or _one(part)), _negated(x.shift))
        case "add" | "sub", [(Affine() as x, in_x), (Affine() as y, in_y)]:
            if in_x and in_y:
                return None
            if in_x:
                return Affine(x.scale, _joined(part.fn, x.shift, y.shift))
            scale = y.scale if part.fn == "add" else _negated(y.scale or _one(part))
            return Affine(scale, _joined(part.fn, x.shift, y.shift))
        case "mul", [(Affine() as x, in_x), (Affine() as y, in_y)]:
            if in_x and in_y:
                return None
            inner, factor = (x, y.shift) if in_x else (y, x.shift)
            return _times("mul", inner, factor)
        case "div", [(Affine() as x, True), (Affine() as y, False)]:
            return _times("div", x, y.shift)
        case _:
            return None


def _times(fn: str, inner: Affine, factor: Scalar | None) -> Affine | None:
    if factor is None:
        return None
    scale = Call(fn, (inner.scale or _one(factor), factor), factor.dtype)
    if fn == "mul" and inner.scale is None:
        scale = factor
    shift = None if inner.shift is None else Call(fn, (inner.shift, factor), factor.dtype)
    return Affine(scale, shift)


def _joined(fn: str, left: Scalar | None, right: Scalar | None) -> Scalar | None:
    if right is None:
        return left
    if left is None:
        return right if fn == "add" else _negated(right)
    return Call(fn, (left, right), left.dtype)


def _negated(value: Scalar | None) -> Scalar | None:
    return None if value is None else Call("neg", (value,), value.dtype)


def _one(like: Scalar) -> Scalar:
    return literal(1, like.dtype)


@lru_cache(1 << 16)
def _mentions(formula: Scalar, k: int) -> bool:
    return any(isinstance(part, Arg) and part.index == k for part in postorder(formula))


def linear_in(formula: Scalar, k: int) -> bool:
    """Whether the formula is linear in operand `k`: affine without a shift."""
    found = affine_in(formula, k)
    return found is not None and found.shift is None


@lru_cache(1 << 14)
def increasing(formula: Scalar) -> bool:
    """Whether a formula of one operand never decreases; only what its functions' flags prove."""
    return _increasing(formula) and all(
        not isinstance(part, Arg) or part.index == 0 for part in postorder(formula)
    )


def _increasing(formula: Scalar) -> bool:
    chain = formula
    while not isinstance(chain, Arg):
        if not isinstance(chain, Call):
            return False
        inner = [a for a in chain.args if not isinstance(a, Lit)]
        if len(inner) != 1:
            return False
        flagged = FUNCTIONS[chain.fn].increasing or chain.fn in ("add", "min", "max")
        first = chain.fn == "sub" and chain.args[0] is inner[0]
        if not (flagged or first or _scaled_up(chain)):
            return False
        chain = inner[0]
    return True


def _scaled_up(part: Call) -> bool:
    """Multiplication or division by a positive literal."""
    factors = [a.value for a in part.args if isinstance(a, Lit)]
    if part.fn == "div" and isinstance(part.args[0], Lit):
        return False
    return part.fn in ("mul", "div") and len(factors) == 1 and factors[0] > 0


@lru_cache(1 << 14)
def zero_preserving(formula: Scalar) -> bool:
    """Whether f(0, ..., 0) = 0, by the functions' flags and arithmetic with zero."""
    zero: dict[Scalar, bool] = {}
    for part in postorder(formula):
        zero[part] = _zero(part, zero)
    return zero[formula]


def _zero(part: Scalar, zero: dict[Scalar, bool]) -> bool:
    match part:
        case Arg():
            return True
        case Lit():
            return part.value == 0
        case Cast():
            return zero[part.value]
        case Call(fn="mul"):
            return any(zero[a] for a in part.args)
        case Call(fn="add" | "sub" | "min" | "max"):
            return all(zero[a] for a in part.args)
        case Call(fn="where"):
            return zero[part.args[1]] and zero[part.args[2]]
        case Call(fn="div"):
            divisor = part.args[1]
            return zero[part.args[0]] and isinstance(divisor, Lit) and divisor.value != 0
        case Call():
            return FUNCTIONS[part.fn].zero_preserving and zero[part.args[0]]
        case _:
            return False


@lru_cache(1 << 12)
def homomorphism(formula: Scalar) -> tuple[str, str] | None:
    """(outer, inner) where f(a outer b) = f(a) inner f(b) for a formula of one such function."""
    if isinstance(formula, Call) and all(isinstance(a, Arg) for a in formula.args):
        return FUNCTIONS[formula.fn].turns
    return None


def commutative(formula: Scalar) -> bool:
    """Whether two operands may be exchanged."""
    if not isinstance(formula, Call) or len(formula.args) != 2:
        return False
    return FUNCTIONS[formula.fn].commutative and all(isinstance(a, Arg) for a in formula.args)
