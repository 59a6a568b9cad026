"""Semantic properties, derived from formulas: what rewrites rely on. Not here: rewrites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, isnan
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
    "decreasing": "x <= y implies f(x) >= f(y): f turns max into min",
    "total": "f(x) is NaN where x is, and nowhere else",
    "zero-preserving": "f(0) = 0: f passes zero padding",
    "homomorphism": "f(x . y) = f(x) * f(y), such as exp(x + y) = exp(x) exp(y)",
    "pointwise": "element i of the result depends on element i of each operand only",
    "moves-elements": "every result element is some operand element, by position alone",
    "shift-invariant": "f(x + c) = f(x) for c constant along the folded axis",
    "associative": "the merge of partial results does not depend on how they are grouped",
    "distributive": "a sum times a factor is the sum of the products",
    "reassociated": "sums are taken in another order: infinities of operands may become NaN, or not",
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


def increasing(formula: Scalar) -> bool:
    """Whether a formula of one operand never decreases; only what its functions' flags prove."""
    return direction(formula) == 1


@lru_cache(1 << 14)
def direction(formula: Scalar) -> int:
    """1 where a formula of one operand never decreases, -1 where it never increases, 0 if unknown."""
    sign = 1
    for part in _chain(formula):
        sign *= 1 if isinstance(part, Cast) else _step(part)
    return sign if _is_chain(formula) else 0


@lru_cache(1 << 14)
def total(formula: Scalar) -> bool:
    """Whether a formula of one operand is NaN where the operand is, and nowhere else."""
    return _is_chain(formula) and all(
        isinstance(part, Cast) or _keeps_numbers(part) for part in _chain(formula)
    )


def _inner(part: Scalar) -> Scalar | None:
    """What a step of a chain is applied to: the only operand that is no number."""
    if isinstance(part, Cast):
        floats = part.dtype.is_float and part.value.dtype.is_float
        return part.value if floats else None
    if not isinstance(part, Call):
        return None
    inner = [a for a in part.args if not isinstance(a, Lit)]
    return inner[0] if len(inner) == 1 else None


def _chain(formula: Scalar) -> Iterator[Call | Cast]:
    """The steps from the outermost on, down to the operand or to what is no such step."""
    part = formula
    while (inner := _inner(part)) is not None:
        assert isinstance(part, Call | Cast)
        yield part
        part = inner


def _is_chain(formula: Scalar) -> bool:
    """Whether the steps lead from the result to operand 0."""
    part = formula
    while (inner := _inner(part)) is not None:
        part = inner
    return isinstance(part, Arg) and part.index == 0


def _step(part: Call) -> int:
    """The direction of one function of one operand and numbers."""
    first = not isinstance(part.args[0], Lit)
    numbers = [a.value for a in part.args if isinstance(a, Lit)]
    if any(isnan(n) for n in numbers):
        return 0
    match part.fn:
        case "add" | "min" | "max":
            return 1
        case "neg":
            return -1
        case "sub":
            return 1 if first else -1
        case "mul" if numbers:
            return (numbers[0] > 0) - (numbers[0] < 0)
        case "div" if first and numbers:
            return (numbers[0] > 0) - (numbers[0] < 0)
        case _:
            return int(FUNCTIONS[part.fn].increasing)


def _keeps_numbers(part: Call) -> bool:
    """Whether one step is NaN only of NaN."""
    numbers = [a.value for a in part.args if isinstance(a, Lit)]
    match part.fn:
        case "min" | "max":
            return not any(isnan(n) for n in numbers)
        case "add" | "sub":
            return all(isfinite(n) for n in numbers)
        case "mul" | "div":
            first = not isinstance(part.args[0], Lit)
            return (first or part.fn == "mul") and all(isfinite(n) and n != 0 for n in numbers)
        case _:
            return FUNCTIONS[part.fn].total


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
