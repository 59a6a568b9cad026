"""Folding while importing: known values become constants. Not here: algebraic rules (rules/)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, ArrayData, Constant, Op
from unistack_aot.aicf.types import TensorType, TupleType
from unistack_aot.base.dtypes import DType, i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Sym
from unistack_aot.ops.core import Extents, Item
from unistack_aot.ops.known import symbolic_value
from unistack_aot.ops.op import TensorOp
from unistack_aot.ops.reindex import static

GROWTH = 64 * 1024  # bytes by which a folded result may exceed its operands: no table is unrolled
HEAVY = 1024 * 1024  # bytes of operands from which on rules decide, who know what else uses them


@dataclass
class Folder:
    """What each node became; asking again about a node costs nothing."""

    done: dict[Node, Node] = field(default_factory=dict)
    tuples: dict[Node, tuple[Array, ...]] = field(default_factory=dict)
    folded: int = 0

    def fold(self, node: Node) -> Node:
        """The node with what is known replaced: by constants, by `Extents` for shape arithmetic."""
        stack = [node]
        while stack:
            each = stack[-1]
            waiting = [] if each in self.done else [a for a in each.args if a not in self.done]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if each not in self.done:
                self.done[each] = self._folded(each)
        return self.done[node]

    def _folded(self, node: Node) -> Node:
        args = tuple(self.done[arg] for arg in node.args)
        if any(a is not b for a, b in zip(args, node.args, strict=True)):
            node = Node(node.op, args)
        if isinstance(node.op, Constant | Extents):
            return node
        found = _from_shapes(node) or self._evaluated(node)
        if found is None:
            return node
        self.folded += 1
        self.done[found] = found
        return found

    def _evaluated(self, node: Node) -> Node | None:
        if isinstance(node.op, Item):
            values = self.tuples.get(node.args[0])
            return None if values is None else _constant(values[node.op.k])
        if not isinstance(node.op, TensorOp):
            return None
        found = [_known(arg) for arg in node.args]
        arrays = [array for array in found if array is not None]
        if len(arrays) < len(node.args):
            return None
        # no kernel reads or writes a value without elements: what it would give is known here
        nothing = any(0 in kind.shape for kind in (*map(_type_of, node.args), *_types(node)))
        if not nothing and not _worth(node, sum(a.nbytes for a in arrays)):
            return None
        try:
            result = node.op.reference(*arrays)
        except IRError:  # an attribute holds a symbolic dimension
            return None
        if isinstance(node.type, TupleType):
            self.tuples[node] = tuple(result)
            return None
        return _constant(np.asarray(result, node.tensor.dtype.numpy))


def _from_shapes(node: Node) -> Node | None:
    known = symbolic_value(node) if isinstance(node.type, TensorType) else None
    if known is None:
        return None
    if not any(isinstance(x, Sym) for x in known.flat):
        kind = node.tensor.dtype
        if not kind.is_float and any(not _fits(x, kind) for x in known.flat):
            return None  # it wraps around: evaluated as the type does
        return _constant(known.astype(kind.numpy))
    if node.tensor.dtype is i64 and known.ndim <= 1:
        return Node(Extents(tuple(known.reshape(-1).tolist()), scalar=known.ndim == 0))
    return None


def _fits(number: Any, kind: DType) -> bool:
    limits = np.iinfo(kind.numpy) if kind.numpy.kind in "iu" else None
    return limits is None or limits.min <= int(number) <= limits.max


def _known(node: Node) -> Array | None:
    """The value of a constant, or of anything that has no elements; None if it is not known."""
    if isinstance(node.op, Constant):
        return node.op.data.array
    kind = _type_of(node)
    if 0 not in kind.shape or not all(isinstance(extent, int) for extent in kind.shape):
        return None
    return np.empty(static(kind.shape, "extents"), kind.dtype.numpy)


def _type_of(node: Node) -> TensorType:
    return node.type if isinstance(node.type, TensorType) else node.type.items[0]


def _worth(node: Node, operands: int) -> bool:
    sizes = [_nbytes(kind) for kind in _types(node)]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or sum(known) > operands + GROWTH:
        return False
    return operands <= HEAVY


def _types(node: Node) -> tuple[TensorType, ...]:
    return node.type.items if isinstance(node.type, TupleType) else (node.type,)


def _nbytes(kind: TensorType) -> int | None:
    count = 1
    for extent in kind.shape:
        if not isinstance(extent, int):
            return None
        count *= extent
    return count * kind.dtype.bytes


def _constant(array: Array) -> Node:
    op: Op = Constant(ArrayData.of(array))
    return Node(op)
