"""Scatter: a copy of the data, updated at indices that are data. Not here: gathers (gather.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import TensorType, Type
from unistack_aot.base.errors import IRError
from unistack_aot.ir.scalar import IndexEntry, Scalar
from unistack_aot.mcir.nodes import Kernel, Loop, Param, Role, Stmt, Store, When
from unistack_aot.ops.gather import inside, tuple_at, within, wrap_array, wrapped
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Operand, TensorOp, agree, axes_of, nest, sample
from unistack_aot.ops.reindex import axis_of

# how ONNX's reductions meet the old value, in the words of mcir.nodes.Store
COMBINE = {"none": "set", "add": "add", "mul": "mul", "min": "min", "max": "max"}
_UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


class Scatter(TensorOp, abstract=True):
    """Copies operand 0, then applies the updates (operand 2) in order; none out of range."""

    combine: str

    family = "gather"

    def target(
        self, x: Operand, index: Operand, at: tuple[IndexEntry, ...]
    ) -> tuple[tuple[IndexEntry, ...], Scalar]:
        """Where the update at `at` goes, and whether that is inside."""
        raise IRError(f"{self.name} has no target")

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """Independent copies, then one ordered loop nest over the updates."""
        (result,) = results
        x, index, updates = (Operand(p) for p in args)
        place = axes_of(x.shape, "i")
        copy = nest(x.shape, place, (Store(result.name, place, x(*place)),))
        at = axes_of(updates.shape, "u")
        goal, valid = self.target(x, index, at)
        body: tuple[Stmt, ...] = (
            When(valid, (Store(result.name, goal, updates(*at), self.combine),)),
        )
        for extent, var in zip(reversed(updates.shape), reversed(at), strict=True):
            body = (Loop(str(var), extent, body, Role.SEQ),)
        return Kernel((*args, *results), (*copy, *body))


@dataclass(frozen=True)
class ScatterElements(Scatter):
    """result[..., index[..., i, ...], ...] meets updates[..., i, ...] along `axis`."""

    axis: int
    combine: str = "set"

    samples = (
        sample(
            "f32[3,4]", "i64[2,4]", "f32[2,4]", fill=("normal", "index:3"), axis=0, combine="add"
        ),
        sample("f32[3,4]", "i64[3,1]", "f32[3,1]", fill=("normal", "index:4"), axis=1),
        sample("i64[5]", "i32[3]", "i64[3]", fill=("small", "index:5"), axis=0, combine="max"),
    )

    def infer(self, *types: Type) -> Type:
        """The data's type."""
        x, index, updates = (tensor(t, self.name) for t in types)
        _check(x, index, updates)
        what = f"updates {updates} at {index} of {x}"
        if index.rank != x.rank:
            raise IRError(what)
        agree(index.shape, updates.shape, what)
        return x

    def reference(self, *arrays: Array) -> Array:
        """numpy's unbuffered ufunc.at."""
        x, index, updates = arrays
        position, valid = wrap_array(index, x.shape[self.axis])
        places: list[Array] = [np.asarray(p) for p in np.indices(index.shape)]
        places[self.axis] = position
        return _apply(x, tuple(p[valid] for p in places), updates[valid], self.combine)

    def target(
        self, x: Operand, index: Operand, at: tuple[IndexEntry, ...]
    ) -> tuple[tuple[IndexEntry, ...], Scalar]:
        """The update's own position, but for the axis."""
        position = wrapped(index(*at), x.shape[self.axis])
        goal = (*at[: self.axis], position, *at[self.axis + 1 :])
        return goal, inside(position, x.shape[self.axis])


@dataclass(frozen=True)
class ScatterNd(Scatter):
    """Slices of the result at index tuples meet slices of the updates."""

    combine: str = "set"

    samples = (
        sample("f32[4,3]", "i64[2,1]", "f32[2,3]", fill=("normal", "index:4")),
        sample("f32[4,3]", "i64[5,2]", "f32[5]", fill=("normal", "index:3"), combine="add"),
        sample("f32[4]", "i64[5,1]", "f32[5]", fill=("normal", "index:4"), combine="mul"),
    )

    def infer(self, *types: Type) -> Type:
        """The data's type."""
        x, index, updates = (tensor(t, self.name) for t in types)
        _check(x, index, updates)
        width = index.shape[-1] if index.rank else 0
        if not isinstance(width, int) or not 0 < width <= x.rank:
            raise IRError(f"index tuples of {index} into {x}")
        wanted = index.shape[:-1] + x.shape[width:]
        agree(updates.shape, wanted, f"updates {updates} at {index} of {x}")
        return x

    def reference(self, *arrays: Array) -> Array:
        """numpy's unbuffered ufunc.at."""
        x, index, updates = arrays
        valid = np.ones(index.shape[:-1], bool)
        places: list[Array] = []
        for k in range(index.shape[-1]):
            position, good = wrap_array(index[..., k], x.shape[k])
            places.append(position)
            valid &= good
        return _apply(x, tuple(p[valid] for p in places), updates[valid], self.combine)

    def target(
        self, x: Operand, index: Operand, at: tuple[IndexEntry, ...]
    ) -> tuple[tuple[IndexEntry, ...], Scalar]:
        """The tuple, then the position inside the slice."""
        outer = len(index.shape) - 1
        entries, valid = tuple_at(index, at[:outer], x.shape, 0)
        return (*entries, *at[outer:]), valid


def _check(x: TensorType, index: TensorType, updates: TensorType) -> None:
    if not index.dtype.is_int or updates.dtype is not x.dtype:
        raise IRError(f"updates {updates} at {index} of {x}")


def _apply(x: Array, places: tuple[Array, ...], updates: Array, combine: str) -> Array:
    result = x.copy()
    if combine == "set":
        result[places] = updates
    else:
        _UFUNCS[combine].at(result, places, updates)
    return result


def _combine(call: OnnxCall) -> str:
    reduction = call.attr("reduction", "none")
    if reduction not in COMBINE:
        raise call.refuse(f"with reduction {reduction}", f"use one of {', '.join(COMBINE)}")
    return COMBINE[reduction]


@onnx("Scatter", since=9)
@onnx("ScatterElements", since=11)
def import_scatter_elements(call: OnnxCall) -> Node:
    """ScatterElements (Scatter before opset 11)."""
    x = call.arg(0)
    axis = axis_of(call.attr("axis", 0), x.tensor.rank, call)
    within(call, x, call.arg(1), axis)
    return Node(ScatterElements(axis, _combine(call)), (x, call.arg(1), call.arg(2)))


@onnx("ScatterND", since=11)
def import_scatter_nd(call: OnnxCall) -> Node:
    """ScatterND."""
    return Node(ScatterNd(_combine(call)), (call.arg(0), call.arg(1), call.arg(2)))
