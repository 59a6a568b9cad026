"""Softmax and its logarithm along one axis. Not here: other normalisations (normalise.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import Type
from unistack_aot.base.dtypes import dtype_of
from unistack_aot.base.symbolic import symbol
from unistack_aot.ir import formula as word
from unistack_aot.ir.scalar import Name, Scalar, cast
from unistack_aot.mcir.monoids import accumulator
from unistack_aot.mcir.nodes import Fold, Kernel, Loop, Param, Store
from unistack_aot.ops.compare import Equal
from unistack_aot.ops.convert import converted
from unistack_aot.ops.fold import ArgExtreme, check_axes, index_fold, require_float
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Operand, TensorOp, nest, sample
from unistack_aot.ops.positions import Progression
from unistack_aot.ops.reindex import axis_of, reshape


class SoftmaxFamily(TensorOp, abstract=True):
    """Ops that fold an axis by the softmax monoid (max, sum) and then map its elements."""

    family = "fold"
    axis: int

    samples = (
        sample("f32[2,3]", axis=1),
        sample("f32[2,3,4]", axis=1),
        sample("f16[2,30]", axis=1),
        sample("f64[5,2]", axis=0),
        sample("f32[N,M,2]", axis=1),
        sample("f32[9,1]", axis=1, fill=("special",)),
    )

    def infer(self, *types: Type) -> Type:
        """The operand's own type."""
        (x,) = (tensor(t, self.name) for t in types)
        check_axes((self.axis,), x, self.name)
        require_float(x, self.name)
        return x

    def finish(self, x: Scalar, top: Scalar, total: Scalar) -> Scalar:
        """One result element from the operand's element and the folded state."""
        raise NotImplementedError

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """Per row one fold, then one loop that stores."""
        (operand,), (result,) = args, results
        x, at = Operand(operand), index_fold(operand.shape, (self.axis,), False)
        wide = accumulator(x.dtype)
        fold = Fold(("top", "total"), "softmax", at.folded, (x(*at.operand),))
        index = tuple(symbol("j") if k == self.axis else i for k, i in enumerate(at.operand))
        value = self.finish(cast(wide, x(*index)), Name("top", wide), Name("total", wide))
        store = Store(result.name, index, cast(result.dtype, value))
        row = (fold, Loop("j", operand.shape[self.axis], (store,)))
        return Kernel((*args, *results), nest(at.extents, at.loops, row))


def _shifted(x: Array, axis: int) -> Array:
    wide = x.astype(accumulator(dtype_of(x.dtype)).numpy)
    return wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf)


@dataclass(frozen=True)
class Softmax(SoftmaxFamily):
    """exp(x) / sum(exp(x)) along an axis; a row of -inf only gives NaN."""

    axis: int

    unsigned_results = (0,)

    def finish(self, x: Scalar, top: Scalar, total: Scalar) -> Scalar:
        """exp(x - max) / sum."""
        return word.exp(x - top) / total

    def reference(self, *arrays: Array) -> Array:
        """The definition around the maximum."""
        with np.errstate(all="ignore"):
            raised = np.exp(_shifted(arrays[0], self.axis))
            result = raised / np.sum(raised, axis=self.axis, keepdims=True)
        return result.astype(arrays[0].dtype)


@dataclass(frozen=True)
class LogSoftmax(SoftmaxFamily):
    """x - log(sum(exp(x))) along an axis."""

    axis: int

    def finish(self, x: Scalar, top: Scalar, total: Scalar) -> Scalar:
        """x - max - log(sum)."""
        return x - top - word.log(total)

    def reference(self, *arrays: Array) -> Array:
        """The definition around the maximum."""
        with np.errstate(all="ignore"):
            shifted = _shifted(arrays[0], self.axis)
            total = np.sum(np.exp(shifted), axis=self.axis, keepdims=True)
            return (shifted - np.log(total)).astype(arrays[0].dtype)


def _flattened(call: OnnxCall, make: Callable[[int], SoftmaxFamily]) -> Node:
    """Before opset 13, all axes from `axis` on form one row."""
    x = call.arg(0)
    shape = x.tensor.shape
    axis = axis_of(call.attr("axis", 1), len(shape), call)
    if all(d == 1 for d in shape[axis + 1 :]):
        return Node(make(axis), (x,))
    rows = reshape(x, (prod(shape[:axis], start=1), prod(shape[axis:], start=1)))
    return reshape(Node(make(1), (rows,)), shape)


def _along_axis(call: OnnxCall, make: Callable[[int], SoftmaxFamily]) -> Node:
    x = call.arg(0)
    return Node(make(axis_of(call.attr("axis", -1), x.tensor.rank, call)), (x,))


@onnx("Softmax")
def import_softmax_rows(call: OnnxCall) -> Node:
    """Softmax over all axes from `axis` on."""
    return _flattened(call, Softmax)


@onnx("Softmax", since=13)
def import_softmax(call: OnnxCall) -> Node:
    """Softmax along one axis."""
    return _along_axis(call, Softmax)


@onnx("LogSoftmax")
def import_log_softmax_rows(call: OnnxCall) -> Node:
    """LogSoftmax over all axes from `axis` on."""
    return _flattened(call, LogSoftmax)


@onnx("LogSoftmax", since=13)
def import_log_softmax(call: OnnxCall) -> Node:
    """LogSoftmax along one axis."""
    return _along_axis(call, LogSoftmax)


def _first_greatest(x: Node, axis: int) -> Node:
    """1 at the first maximum along an axis, else 0."""
    places = Node(Progression(0, 1, x.tensor.shape[axis]))
    column = reshape(places, (x.tensor.shape[axis], *((1,) * (x.tensor.rank - axis - 1))))
    chosen = Node(Equal(), (Node(ArgExtreme(axis), (x,)), column))
    return converted(chosen, x.tensor.dtype)


@onnx("Hardmax")
def import_hardmax_rows(call: OnnxCall) -> Node:
    """Hardmax over all axes from `axis` on."""
    x = call.arg(0)
    shape = x.tensor.shape
    axis = axis_of(call.attr("axis", 1), len(shape), call)
    rows = reshape(x, (prod(shape[:axis], start=1), prod(shape[axis:], start=1)))
    return reshape(_first_greatest(rows, 1), shape)


@onnx("Hardmax", since=13)
def import_hardmax(call: OnnxCall) -> Node:
    """Hardmax along one axis."""
    x = call.arg(0)
    return _first_greatest(x, axis_of(call.attr("axis", -1), x.tensor.rank, call))
