"""What is known at compile time about a value: constants, and integer vectors made of symbolic dimensions."""

from __future__ import annotations

from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from numpy.typing import NDArray

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Constant
from unistack_aot.base.symbolic import Dim, Sym
from unistack_aot.ops.op import TensorOp

LARGEST = 4096  # elements; dimension arithmetic is about shapes and small position vectors, not about data

_SYMBOLIC: WeakKeyDictionary[Node, NDArray[Any] | None] = WeakKeyDictionary()


def known_value(node: Node) -> NDArray[Any] | None:
    """The array a node evaluates to, if it is a constant or integer arithmetic on constants; else None."""
    if isinstance(node.op, Constant):
        return node.op.data.array
    found = symbolic_value(node)
    if found is None or any(isinstance(x, Sym) for x in found.flat):
        return None
    return found.astype(node.tensor.dtype.numpy)


def known_dims(node: Node) -> tuple[Dim, ...] | None:
    """A known integer scalar or vector as dimensions, symbolic ones included."""
    found = symbolic_value(node)
    return None if found is None else tuple(found.reshape(-1).tolist())


def symbolic_value(node: Node) -> NDArray[Any] | None:
    """A known integer or bool tensor as an object array of ints, bools and symbolic dimensions; None if not known."""
    stack = [node]
    while (
        stack
    ):  # stops at values met before, so that asking about each node of a chain stays linear
        each = stack[-1]
        waiting = [] if each in _SYMBOLIC else [a for a in each.args if a not in _SYMBOLIC]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if each not in _SYMBOLIC:
            _SYMBOLIC[each] = _symbolic(each)
    return _SYMBOLIC[node]


def _symbolic(node: Node) -> NDArray[Any] | None:
    kind = node.type
    if not hasattr(kind, "dtype") or node.tensor.dtype.is_float:
        return None
    sizes = [d for d in node.tensor.shape if isinstance(d, int)]
    if len(sizes) < len(node.tensor.shape) or prod(sizes) > LARGEST:
        return None
    if isinstance(node.op, Constant):
        return node.op.data.array.astype(object)
    if not isinstance(node.op, TensorOp):
        return None
    args = [_SYMBOLIC.get(arg) for arg in node.args]
    if any(a is None for a in args):
        return None
    return node.op.symbolic(*(a for a in args if a is not None))
