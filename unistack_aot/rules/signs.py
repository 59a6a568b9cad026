"""What is known of signs: values without a sign bit, sums that are never -0. Not here: other properties.

x + 0 is x for every x but -0, and pow(x, 0.5) is sqrt(x) for every x but -0 and -inf: rules that
drop or exchange such maps ask here whether those values can occur.
"""

from __future__ import annotations

from math import copysign

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Constant
from unistack_aot.aicf.properties import formula_of
from unistack_aot.aicf.types import TensorType
from unistack_aot.ir.scalar import Arg, Call, Cast, Lit, Scalar, postorder
from unistack_aot.ops.core import Item

DEPTH = 6
"""Nodes looked at on a path: signs are known near where they are made, or not at all."""
_NEVER_SIGNED = frozenset({"exp", "abs", "sigmoid", "cosh"})
_KEEPS = frozenset({"add", "mul", "div", "min", "max", "sqrt", "rsqrt", "reciprocal", "where"})


def unsigned(node: Node, depth: int = DEPTH) -> bool:
    """Whether no element has its sign bit set, NaN aside: neither negative numbers nor -0."""
    if not isinstance(node.type, TensorType) or not node.tensor.dtype.is_float:
        return False
    if isinstance(node.op, Constant):
        return not np.signbit(node.op.data.array.astype(np.float64)).any()
    if isinstance(node.op, Item):
        return node.op.k in node.args[0].op.unsigned_results
    if 0 in node.op.unsigned_results:
        return True
    if depth == 0:
        return False
    if node.op.moves or (node.op.sums() and len(node.args) == 1):
        return all(unsigned(arg, depth - 1) for arg in node.args)
    formula = formula_of(node)
    return formula is not None and _unsigned_formula(formula, node, depth)


def _unsigned_formula(formula: Scalar, node: Node, depth: int) -> bool:
    known: dict[Scalar, bool] = {}
    for part in postorder(formula):
        match part:
            case Arg():
                known[part] = unsigned(node.args[part.index], depth - 1)
            case Lit():
                known[part] = copysign(1, part.value) > 0
            case Cast():
                known[part] = known[part.value]
            case Call():
                known[part] = _unsigned_call(part, known, node)
            case _:
                known[part] = False
    return known[formula]


def _unsigned_call(part: Call, known: dict[Scalar, bool], node: Node) -> bool:
    if part.fn in _NEVER_SIGNED:
        return True
    values = part.args[1:] if part.fn == "where" else part.args
    if part.fn == "mul" and len({_value(a, node) for a in values}) == 1:
        return True
    if part.fn == "max" and any(isinstance(a, Lit) and a.value > 0 for a in values):
        return True
    return part.fn in _KEEPS and all(known[a] for a in values)


def _value(part: Scalar, node: Node) -> object:
    """What tells equal operands apart: the node behind an argument."""
    while isinstance(part, Cast):
        part = part.value
    return node.args[part.index] if isinstance(part, Arg) else part


def never_negative_zero(node: Node, depth: int = DEPTH) -> bool:
    """Whether no element is -0: sums start from +0, and only -0 + -0 is -0."""
    if unsigned(node, depth) or node.op.sums():
        return True
    if depth == 0 or not isinstance(node.type, TensorType):
        return False
    if node.op.moves:
        return all(never_negative_zero(arg, depth - 1) for arg in node.args)
    formula = formula_of(node)
    while isinstance(formula, Cast) and formula.dtype.is_float:
        formula = formula.value
    if not isinstance(formula, Call) or formula.fn != "add":
        return False
    return any(
        isinstance(a, Arg) and never_negative_zero(node.args[a.index], depth - 1)
        for a in map(_uncast, formula.args)
    )


def _uncast(part: Scalar) -> Scalar:
    while isinstance(part, Cast):
        part = part.value
    return part
