"""Proof that a mask is causal: its elements as conditions on positions. Not here: attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Constant
from unistack_aot.aicf.types import Shape
from unistack_aot.base.dtypes import DType
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, Ranges, bounds, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import (
    Call,
    Cast,
    Index,
    IndexEntry,
    Lit,
    Scalar,
    index_value,
    literal,
    where,
)
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.ops.op import MapOp, Operand
from unistack_aot.rules.find import Array, array_of

HIDDEN = -1e4  # exp(score + this) is 0 in f32 beside any score above -9000; exporters write no more
DEPTH = 40  # nodes between a mask and the positions it is made of

ROW, COLUMN = symbol("row"), symbol("column")


@dataclass(frozen=True, slots=True)
class _Source(Operand):
    """An operand that is not read from memory: its elements are the formula of its node."""

    node: Node
    depth: int

    def __call__(self, *index: IndexEntry) -> Scalar:
        return element_of(self.node, tuple(index), self.depth + 1)


def element_of(node: Node, index: tuple[IndexEntry, ...], depth: int = 0) -> Scalar:
    """A node's element at an index as a formula over positions; IRError if it depends on data."""
    if depth > DEPTH:
        raise IRError("the mask is a long computation")
    if any(isinstance(i, Scalar) for i in index):
        raise IRError("the mask is read at computed positions")
    places = tuple(i for i in index if not isinstance(i, Scalar))
    if isinstance(node.op, Constant):
        return _constant_element(node, places)
    if not isinstance(node.op, MapOp):
        raise IRError(f"the mask depends on {node.op.name}")
    operands = tuple(
        _Source(Param("x", a.tensor.dtype, a.tensor.shape), a, depth) for a in node.args
    )
    result = Param("y", node.tensor.dtype, node.tensor.shape, Access.OUT)
    return node.op.element(operands, places, result)


def _constant_element(node: Node, index: tuple[Dim, ...]) -> Scalar:
    """A repeated number, or a triangle of two numbers, by position."""
    array = array_of(node)
    assert array is not None
    if array.size and (array == array.reshape(-1)[0]).all():
        return literal(array.reshape(-1)[0].item(), node.tensor.dtype)
    if array.ndim == 1 and (array == np.arange(array.size)).all() and node.tensor.dtype.is_int:
        return index_value(index[0])
    found = _triangle(array)
    if found is None:
        raise IRError("the constant mask is no triangle")
    below, above, offset = found
    inside = index_value(index[-1]) <= index_value(index[-2] + offset)
    return where(inside, _number(below, node.tensor.dtype), _number(above, node.tensor.dtype))


def _number(value: object, dtype: DType) -> Scalar:
    return literal(value.item() if isinstance(value, np.generic) else float(str(value)), dtype)


def _triangle(array: Array) -> tuple[object, object, int] | None:
    """(value where column <= row + offset, value elsewhere, offset) of equal matrices; or None."""
    if array.ndim < 2 or array.shape[-1] < 2 or array.size > 1 << 24:
        return None
    matrices = array.reshape(-1, *array.shape[-2:])
    first = matrices[0]
    if (matrices != first).any():
        return None
    below = first[-1, 0]
    changes = np.nonzero(first[-1] != below)[0]
    rows = first.shape[0]
    if changes.size:
        offset = int(changes[0]) - rows
    else:
        changes = np.nonzero(first[0] != below)[0]
        offset = int(changes[0]) - 1 if changes.size else first.shape[1]
    above = first[0, -1]
    columns = np.arange(first.shape[1])[None, :]
    wanted = np.where(columns <= np.arange(rows)[:, None] + offset, below, above)
    return (below, above, offset) if (wanted == first).all() else None


@dataclass(frozen=True)
class Visible:
    """gap >= 0 is when a position is visible."""

    gap: Dim


def visible(mask: Node, axes: tuple[int, int], low: float | None) -> Visible | No:
    """When an element of a mask shows its score, by its row and column (axes counted from the end).

    Masks of truth values show where true (`low` None). Masks that are added show where 0 and hide
    where at most HIDDEN; `low` then is a factor on them.
    """
    rank = mask.tensor.rank
    if rank < 2 or any(d != 1 for d in mask.tensor.shape[:-2]):
        return No("the mask differs between batches or heads")
    if axes != (-2, -1):
        return No("the mask's last axes are not queries and keys")
    shape = mask.tensor.shape
    index = (*(0 for _ in range(rank - 2)), *_positions(shape[-2:]))
    try:
        value = element_of(mask, index)
        ranges = {"row": (0, shape[-2] - 1), "column": (0, shape[-1] - 1)}
        gap = _gap(value, ranges) if low is None else _added_gap(value, ranges, low)
    except IRError as fault:
        return No(fault.what)
    return Visible(gap)


def _positions(shape: Shape) -> tuple[Dim, Dim]:
    return (0 if shape[0] == 1 else ROW, 0 if shape[1] == 1 else COLUMN)


def _added_gap(value: Scalar, ranges: Ranges, factor: float) -> Dim:
    if not isinstance(value, Call) or value.fn != "where":
        raise IRError("the mask is no choice by position")
    gap, yes, no = _gap(value.args[0], ranges), _float(value.args[1]), _float(value.args[2])
    if yes == 0 and no * factor <= HIDDEN:
        return gap
    if no == 0 and yes * factor <= HIDDEN:
        return -gap - 1
    raise IRError(f"the mask chooses between {yes} and {no}")


def _float(value: Scalar) -> float:
    match value:
        case Lit():
            return float(value.value)
        case Cast():
            return _float(value.value)
        case Call(fn="neg"):
            return -_float(value.args[0])
        case Call(fn="mul"):
            return _float(value.args[0]) * _float(value.args[1])
        case _:
            raise IRError("the mask adds more than two numbers")


def _gap(value: Scalar, ranges: Ranges) -> Dim:
    """A dimension expression that is >= 0 exactly where the condition holds."""
    match value:
        case Call(fn="le"):
            return _dim(value.args[1]) - _dim(value.args[0])
        case Call(fn="lt"):
            return _dim(value.args[1]) - _dim(value.args[0]) - 1
        case Call(fn="not"):
            return -_gap(value.args[0], ranges) - 1
        case Cast():
            return _gap(value.value, ranges)
        case Lit():
            return 0 if value.value else -1
        case Call(fn="and"):
            gaps = [_gap(part, ranges) for part in value.args]
            open_ = [gap for gap in gaps if not _always(gap, ranges)]
            if len(open_) > 1 and open_[0] != open_[1]:
                raise IRError("the mask combines two conditions")
            return open_[0] if open_ else 0
        case Call(fn="where"):
            yes, no = value.args[1], value.args[2]
            if isinstance(yes, Lit) and isinstance(no, Lit) and bool(yes.value) != bool(no.value):
                gap = _gap(value.args[0], ranges)
                return gap if yes.value else -gap - 1
            raise IRError("the mask is a choice between conditions")
        case _:
            raise IRError("the mask is no comparison of positions")


def _always(gap: Dim, ranges: Ranges) -> bool:
    low = bounds(gap, ranges)[0]
    return low is not None and low >= 0


def _dim(value: Scalar) -> Dim:
    match value:
        case Index():
            return value.dim
        case Lit() if isinstance(value.value, int):
            return value.value
        case Cast() if value.dtype.is_int or float(value.dtype.bits) >= 32:
            return _dim(value.value)
        case Call(fn="add"):
            return _dim(value.args[0]) + _dim(value.args[1])
        case Call(fn="sub"):
            return _dim(value.args[0]) - _dim(value.args[1])
        case Call(fn="neg"):
            return -_dim(value.args[0])
        case _:
            raise IRError("the mask compares something other than positions")


def is_causal(mask: Node, queries: Dim, keys: Dim, factor: float | None) -> Yes | No:
    """Whether a mask shows key j to query i just when j <= i + keys - queries, and each sees one.

    `factor` None: truth values, shown where true; else an added mask times that factor.
    """
    if mask.tensor.shape[-2:] != (queries, keys):
        return No("the mask is not as large as the scores")
    found = visible(mask, (-2, -1), factor)
    if isinstance(found, No):
        return found
    row, column = _positions((queries, keys))
    if found.gap != row + keys - queries - column:
        return No(f"a key is visible where {found.gap} >= 0, which is not the causal mask")
    least = bounds(keys - queries, {})[0]
    if least is None or least < 0:
        return No("there may be fewer keys than queries, so that a query sees none")
    return YES
