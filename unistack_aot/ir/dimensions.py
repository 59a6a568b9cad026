"""Scalar formulas over symbolic dimensions: what a model's shape arithmetic evaluates to before shapes are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Sym, bounds, maximum, minimum
from unistack_aot.ir.scalar import Arg, Call, Cast, Lit, Scalar, children, postorder

Objects = NDArray[Any]  # dtype object: ints, bools and Syms


def symbolic_formula(formula: Scalar, args: tuple[Objects, ...]) -> Objects | None:
    """Evaluate elementwise over dimensions.

    None where a comparison cannot be decided or a function has no exact meaning.

    Symbols stand for extents: they are at least 0.
    """
    done: dict[Scalar, Objects] = {}
    for node in postorder(formula):
        value = _value(node, done, args)
        if value is None:
            return None
        done[node] = value
    return done[formula]


def _value(node: Scalar, done: dict[Scalar, Objects], args: tuple[Objects, ...]) -> Objects | None:
    match node:
        case Arg():
            return args[node.index]
        case Lit():
            return np.array(node.value, dtype=object)
        case Cast():
            if node.dtype.is_float:
                return None
            value = done[node.value]
            return np.vectorize(_truth, otypes=[object])(value) if node.dtype.is_bool else value
        case Call():
            function = _EXACT.get(node.fn)
            operands = [done[a] for a in children(node)]
            if function is None:
                return None
            try:
                return np.asarray(
                    np.frompyfunc(function, len(operands), 1)(*operands), dtype=object
                )
            except (IRError, ZeroDivisionError):
                return None
        case _:
            return None


def _truth(value: Any) -> bool:
    return not _decide_equal(value, 0)


def _divide(a: Any, b: Any) -> Any:
    """Truncating division; extents are not negative, so it is the floor unless a literal is negative."""
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    low = bounds(a, {})[0]
    if low is None or low < 0 or not (isinstance(b, Sym) or b > 0):
        raise IRError("the sign of a divided dimension is not known")
    return a // b


def _decide_less(a: Any, b: Any) -> bool:
    low, high = bounds(b - a, {})
    if low is not None and low > 0:
        return True
    if high is not None and high <= 0:
        return False
    raise IRError(f"{a} < {b} depends on the shape")


def _decide_equal(a: Any, b: Any) -> bool:
    gap = a - b
    if isinstance(gap, int):
        return gap == 0
    low, high = bounds(gap, {})
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    raise IRError(f"{a} == {b} depends on the shape")


_EXACT: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "div": _divide,
    "mod": lambda a, b: a % b,
    "min": minimum,
    "max": maximum,
    "lt": _decide_less,
    "le": lambda a, b: not _decide_less(b, a),
    "eq": _decide_equal,
    "not": lambda a: not a,
    "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
    "where": lambda c, a, b: a if c else b,
}
