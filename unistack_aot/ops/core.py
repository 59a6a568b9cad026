"""Core values: dimensions as data, and the selection of one result of an op with several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, ArrayData, Constant, Op
from unistack_aot.aicf.types import TensorType, TupleType, Type
from unistack_aot.base.dtypes import i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim
from unistack_aot.ir.scalar import Scalar, index_value
from unistack_aot.mcir.nodes import Kernel, Param, Store
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import TensorOp, sample


@dataclass(frozen=True)
class Extents(TensorOp):
    """A vector (or, with `scalar`, one number) of dimensions as i64 data: what ONNX Shape gives."""

    dims: tuple[Dim, ...]
    scalar: bool = False

    family = "core"

    def infer(self, *types: Type) -> Type:
        """i64[n], or i64[]."""
        return TensorType(i64, () if self.scalar else (len(self.dims),))

    def reference(self, *arrays: Array) -> Array:
        """The numbers; only dimensions without symbols have a value here."""
        if any(not isinstance(d, int) for d in self.dims):
            raise IRError("symbolic dimensions have no value before shapes are bound")
        value = np.asarray(self.dims, np.int64)
        return value.reshape(()) if self.scalar else value

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """One store per dimension."""
        (result,) = results
        values: list[Scalar] = [index_value(d) for d in self.dims]
        stores = (Store(result.name, () if self.scalar else (k,), v) for k, v in enumerate(values))
        return Kernel(results, tuple(stores))

    def symbolic(self, *values: Array) -> Array | None:
        """The dimensions themselves."""
        value = np.empty(len(self.dims), dtype=object)
        value[:] = self.dims
        return value.reshape(()) if self.scalar else value

    samples = (sample(dims=(2, 3, 5)), sample(dims=(7,), scalar=True))


@dataclass(frozen=True)
class Item(Op):
    """Result number `k` of an op with several."""

    k: int

    family = "core"

    def infer(self, *types: Type) -> Type:
        """The type of that result."""
        (kind,) = types
        if not isinstance(kind, TupleType) or not 0 <= self.k < len(kind.items):
            raise IRError(f"there is no result {self.k} in {kind}")
        return kind.items[self.k]

    def reference(self, *arrays: Array) -> Array:
        """That one of the arrays, which are all results of an op."""
        return arrays[self.k]


def item(value: Node, k: int) -> Node:
    """Select result `k` of a node with several results."""
    return Node(Item(k), (value,))


def constant(value: object, like: Node | None = None) -> Node:
    """A constant node; numbers take the dtype of `like`."""
    array = np.asarray(value, None if like is None else like.tensor.dtype.numpy)
    return Node(Constant(ArrayData.of(array)))


def extent_of(node: Node, axes: tuple[int, ...]) -> Node:
    """The product of some extents of a node, as an i64 scalar node."""
    count: Dim = 1
    for axis in axes:
        count = count * node.tensor.shape[axis]
    return (
        constant(np.int64(count))
        if isinstance(count, int)
        else Node(Extents((count,), scalar=True))
    )


@onnx("Constant")
def import_constant(call: OnnxCall) -> Node:
    """Constant, whichever attribute holds the value."""
    for name in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        if name in call.attributes:
            dtype = {"value_float": np.float32, "value_floats": np.float32}.get(name)
            return constant(np.asarray(call.attributes[name], dtype))
    raise call.refuse("with a sparse or string value", "only dense numeric constants are supported")


@onnx("Identity")
def import_identity(call: OnnxCall) -> Node:
    """The operand itself."""
    return call.arg(0)


@onnx("Shape")
def import_shape(call: OnnxCall) -> Node:
    """Extents, or part of them (opset 15: start, end)."""
    shape = call.arg(0).tensor.shape
    return Node(Extents(shape[call.attr("start", 0) : call.attributes.get("end")]))


@onnx("Size")
def import_size(call: OnnxCall) -> Node:
    """Number of elements as an i64 scalar."""
    node = call.arg(0)
    return extent_of(node, tuple(range(node.tensor.rank)))
