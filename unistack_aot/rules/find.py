"""The words in which rules are written: patterns, constants, and small builders of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Constant, Op
from unistack_aot.aicf.types import Shape
from unistack_aot.base.dtypes import DType
from unistack_aot.base.verdict import No
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.pattern import Of, Pattern, Test, Wild
from unistack_aot.ir.rewrite import JointRule, Rule, Users
from unistack_aot.ops.core import constant
from unistack_aot.ops.pointwise import Add, Binary, Mul

Array = NDArray[Any]
NodeRule = Rule[Node]
NodeJointRule = JointRule[Node]
NodeUsers = Users[Node]

__all__ = ["No", "Node", "NodeJointRule", "NodeRule", "NodeUsers"]


def find(
    op: type[Op] | tuple[type[Op], ...],
    *args: Pattern,
    name: str = "",
    test: Test | None = None,
    once: bool = False,
) -> Of:
    """A node of this operation; arguments in any order where the operation's function commutes.

    No argument patterns leave the arguments open.
    """
    ops = op if isinstance(op, tuple) else (op,)
    swaps = len(args) == 2 and all(
        issubclass(cls, Binary) and FUNCTIONS[cls.fn].commutative for cls in ops
    )
    return Of(ops, tuple(args) or None, name, test, swaps, once)


def any_(name: str, test: Test | None = None) -> Wild:
    """Any node."""
    return Wild(name, test)


def known(name: str) -> Wild:
    """A constant."""
    return Wild(name, is_constant)


def is_constant(node: Node) -> bool:
    """Whether a node is a constant."""
    return isinstance(node.op, Constant)


def array_of(node: Node) -> Array | None:
    """The array of a constant; None for other nodes."""
    return node.op.data.array if isinstance(node.op, Constant) else None


def known_array(node: Node) -> Array:
    """The array of a node that a pattern found to be constant."""
    assert isinstance(node.op, Constant)
    return node.op.data.array


def number_of(node: Node) -> float | None:
    """The value of a constant whose elements are all equal; None for other nodes."""
    array = array_of(node)
    if array is None or array.size == 0 or array.dtype.kind in "biu" or node.tensor.dtype.is_int:
        return None
    flat = np.asarray(array, np.float64).reshape(-1)
    same = (flat == flat[0]) & (np.signbit(flat) == np.signbit(flat[0]))  # 0.0 is not -0.0
    return float(flat[0]) if flat.size == 1 or same.all() else None


def rounded(array: Array, dtype: DType) -> Node | No:
    """A constant computed in f64, rounded once; No where that overflows, or leaves nothing."""
    with np.errstate(all="ignore"):
        value = np.asarray(array).astype(dtype.numpy)
    if not np.isfinite(np.asarray(value, np.float64)).all():
        return No(f"a folded value is not finite in {dtype.name}")
    if ((np.asarray(value, np.float64) == 0) & (np.asarray(array) != 0)).any():
        return No(f"a folded value vanishes in {dtype.name}, which infinity times it would not")
    return constant(value)


def wide(node: Node) -> Array:
    """A constant's values in f64."""
    return np.asarray(known_array(node), np.float64)


def add(x: Node, y: Node) -> Node:
    """x + y."""
    return Node(Add(), (x, y))


def multiply(x: Node, y: Node) -> Node:
    """x * y."""
    return Node(Mul(), (x, y))


def aligned(shape: Sequence[Any], rank: int) -> Shape:
    """A shape with leading ones up to `rank`, as broadcasting reads it."""
    return (1,) * (rank - len(shape)) + tuple(shape)
