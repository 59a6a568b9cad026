"""Folds over whole axes: reductions by a monoid and their compositions. Not here: windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import TensorType, TupleType, Type
from unistack_aot.base.dtypes import DType, bool_, dtype_of, i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, Sym, symbol
from unistack_aot.ir import formula as word
from unistack_aot.ir.scalar import Lit, Name, call, cast, index_value, where
from unistack_aot.mcir.monoids import MONOIDS, accumulator
from unistack_aot.mcir.nodes import Axis, Fold, Kernel, Param, Stmt, Store
from unistack_aot.ops.convert import converted
from unistack_aot.ops.core import constant, extent_of
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Operand, TensorOp, nest, sample
from unistack_aot.ops.pointwise import Abs, Div, Exp, Log, Mul, Sqrt
from unistack_aot.ops.reindex import axis_of, static

D = TypeVar("D", bound=Dim)
_NUMPY: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
}


def identity_of(monoid: str, dtype: DType) -> float:
    """The neutral value of a monoid of one value, in its accumulator's dtype."""
    value = MONOIDS[monoid].identity((dtype,))[0]
    if not isinstance(value, Lit):
        raise IRError(f"the identity of {monoid} is no literal")
    return value.value


def fold_array(monoid: str, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Reduce in numpy, sums of narrow floats in f32; the result has the dtype of `x`."""
    dtype = dtype_of(x.dtype)
    if monoid in ("max", "min"):
        if any(x.shape[axis] == 0 for axis in axes):
            shape = kept_shape(x.shape, axes, keepdims)
            return np.full(static(shape, "shape"), identity_of(monoid, dtype), x.dtype)
        return np.asarray(_NUMPY[monoid](x, axis=axes, keepdims=keepdims))
    wide = accumulator(dtype).numpy
    with np.errstate(all="ignore"):
        result = _NUMPY[monoid](x.astype(wide), axis=axes, keepdims=keepdims)
    return np.asarray(result).astype(x.dtype)


def kept_shape(shape: Sequence[D], axes: Sequence[int], keepdims: bool) -> tuple[D | int, ...]:
    """The shape after reducing `axes`: they vanish, or become 1."""
    if keepdims:
        return tuple(1 if k in axes else d for k, d in enumerate(shape))
    return tuple(d for k, d in enumerate(shape) if k not in axes)


def check_axes(axes: Sequence[int], kind: TensorType, op: str) -> None:
    """IRError unless `axes` are distinct, ascending axes of `kind`."""
    if list(axes) != sorted(set(axes)) or any(not 0 <= a < kind.rank for a in axes):
        raise IRError(f"{op} over axes {tuple(axes)} of {kind}")


@dataclass(frozen=True)
class Indexing:
    """Index symbols of a reduction: operand index, result index, loop axes and folded axes."""

    operand: tuple[Dim, ...]
    result: tuple[Dim, ...]
    extents: tuple[Dim, ...]
    loops: tuple[Sym, ...]
    folded: tuple[Axis, ...]


def index_fold(shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> Indexing:
    """Symbols `i<axis>` for kept axes and `r<axis>` for folded ones."""
    operand = tuple(symbol(f"{'r' if k in axes else 'i'}{k}") for k in range(len(shape)))
    kept = tuple(k for k in range(len(shape)) if k not in axes)
    result = tuple(
        0 if k in axes else operand[k] for k in range(len(shape)) if keepdims or k not in axes
    )
    return Indexing(
        operand,
        result,
        tuple(shape[k] for k in kept),
        tuple(operand[k] for k in kept),
        tuple(Axis(f"r{k}", shape[k]) for k in axes),
    )


class AxisFold(TensorOp, abstract=True):
    """Base of ops that fold `axes` away, or to extent 1 with `keepdims`."""

    family = "fold"
    axes: tuple[int, ...]
    keepdims: bool

    def nested(
        self, args: tuple[Param, ...], body: Callable[[Operand, Indexing], tuple[Stmt, ...]]
    ) -> tuple[Stmt, ...]:
        """Loops over the kept axes around `body(operand, indexing)`."""
        (x,) = args
        at = index_fold(x.shape, self.axes, self.keepdims)
        return nest(at.extents, at.loops, body(Operand(x), at))


@dataclass(frozen=True)
class Reduce(AxisFold):
    """The monoid's fold over `axes`; sums and products of narrow floats are kept in f32."""

    monoid: str
    axes: tuple[int, ...]
    keepdims: bool = True

    samples = (
        sample("f32[2,3,4]", monoid="sum", axes=(1,)),
        sample("f32[2,3,4]", monoid="sum", axes=(0, 2), keepdims=False),
        sample("f16[2,300]", monoid="sum", axes=(1,)),
        sample("i64[2,3]", monoid="sum", axes=(0, 1)),
        sample("f32[2,3]", monoid="prod", axes=(1,)),
        sample("f32[2,9]", monoid="max", axes=(1,), keepdims=False, fill=("special",)),
        sample("i32[2,3]", monoid="min", axes=(0,)),
        sample("bool[2,3]", monoid="any", axes=(1,)),
        sample("bool[2,3]", monoid="all", axes=(1,)),
        sample("f32[2,0]", monoid="max", axes=(1,)),
        sample("f32[N,4,M]", monoid="sum", axes=(0, 2)),
        sample("bf16[2,9]", monoid="sum", axes=(1,)),
        sample("f32[4]", monoid="max", axes=(0,), keepdims=False),
    )

    def sums(self) -> bool:
        """Whether its monoid is the sum."""
        return self.monoid == "sum"

    def infer(self, *types: Type) -> Type:
        """The operand's dtype over the kept shape."""
        (x,) = (tensor(t, self.name) for t in types)
        check_axes(self.axes, x, self.name)
        if self.monoid not in _NUMPY:
            raise IRError(f"{self.monoid} is not a monoid of one value")
        if (self.monoid in ("any", "all")) != (x.dtype is bool_):
            raise IRError(f"{self.monoid} of {x}")
        return x.with_shape(kept_shape(x.shape, self.axes, self.keepdims))

    def reference(self, *arrays: Array) -> Array:
        """The numpy reduction."""
        return fold_array(self.monoid, arrays[0], self.axes, self.keepdims)

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """One fold per result element."""
        (result,) = results

        def body(x: Operand, at: Indexing) -> tuple[Stmt, ...]:
            state = Name("acc", MONOIDS[self.monoid].fields((x.dtype,))[0])
            fold = Fold(("acc",), self.monoid, at.folded, (x(*at.operand),))
            return fold, Store(result.name, at.result, cast(result.dtype, state))

        return Kernel((*args, *results), self.nested(args, body))


@dataclass(frozen=True)
class LogSumExp(AxisFold):
    """log(sum(exp(x))) over `axes`, by the softmax monoid: never overflows."""

    axes: tuple[int, ...]
    keepdims: bool = True

    samples = (
        sample("f32[2,3,4]", axes=(1,)),
        sample("f16[2,30]", axes=(0, 1), keepdims=False),
        sample("f32[3,1]", axes=(1,), fill=("special",)),
        sample("f32[2,0]", axes=(1,)),
    )

    def infer(self, *types: Type) -> Type:
        """The operand's dtype over the kept shape."""
        (x,) = (tensor(t, self.name) for t in types)
        check_axes(self.axes, x, self.name)
        require_float(x, self.name)
        return x.with_shape(kept_shape(x.shape, self.axes, self.keepdims))

    def reference(self, *arrays: Array) -> Array:
        """max + log(sum(exp(x - max))); an infinite max is the result."""
        x = arrays[0].astype(accumulator(dtype_of(arrays[0].dtype)).numpy)
        with np.errstate(all="ignore"):
            top = np.max(x, axis=self.axes, keepdims=True, initial=-np.inf)
            base = np.where(np.isinf(top), 0, top)
            total = np.log(np.sum(np.exp(x - base), axis=self.axes, keepdims=True))
            result = np.where(np.isinf(top), top, top + total)
        shape = kept_shape(x.shape, self.axes, self.keepdims)
        return result.reshape(shape).astype(arrays[0].dtype)

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """One softmax fold per result element, then max + log(sum)."""
        (result,) = results

        def body(x: Operand, at: Indexing) -> tuple[Stmt, ...]:
            top, total = (Name(n, accumulator(x.dtype)) for n in ("top", "total"))
            fold = Fold(("top", "total"), "softmax", at.folded, (x(*at.operand),))
            value = where(call("isinf", top), top, top + word.log(total))
            return fold, Store(result.name, at.result, cast(result.dtype, value))

        return Kernel((*args, *results), self.nested(args, body))


@dataclass(frozen=True)
class Moments(AxisFold):
    """Mean and (biased) variance over `axes`: two results, by one pass with Chan's merge."""

    axes: tuple[int, ...]
    keepdims: bool = True

    samples = (
        sample("f32[2,3,4]", axes=(2,)),
        sample("f32[2,3,4]", axes=(0, 2), keepdims=False),
        sample("f64[2,30]", axes=(1,)),
        sample("f16[N,M]", axes=(1,)),
    )
    unsigned_results = (1,)

    def infer(self, *types: Type) -> Type:
        """Two tensors of the operand's dtype over the kept shape."""
        (x,) = (tensor(t, self.name) for t in types)
        check_axes(self.axes, x, self.name)
        require_float(x, self.name)
        kind = x.with_shape(kept_shape(x.shape, self.axes, self.keepdims))
        return TupleType((kind, kind))

    def reference(self, *arrays: Array) -> tuple[Array, ...]:
        """numpy mean and var."""
        x = arrays[0].astype(accumulator(dtype_of(arrays[0].dtype)).numpy)
        with np.errstate(all="ignore"):
            mean = np.mean(x, axis=self.axes, keepdims=self.keepdims)
            variance = np.var(x, axis=self.axes, keepdims=self.keepdims)
        return tuple(np.asarray(r).astype(arrays[0].dtype) for r in (mean, variance))

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """One fold per pair of result elements."""
        mean, variance = results

        def body(x: Operand, at: Indexing) -> tuple[Stmt, ...]:
            wide = accumulator(x.dtype)
            count, center, spread = (Name(n, wide) for n in ("count", "center", "spread"))
            fold = Fold(("count", "center", "spread"), "moments", at.folded, (x(*at.operand),))
            return (
                fold,
                Store(mean.name, at.result, cast(mean.dtype, center)),
                Store(variance.name, at.result, cast(variance.dtype, spread / count)),
            )

        return Kernel((*args, *results), self.nested(args, body))


@dataclass(frozen=True)
class ArgExtreme(TensorOp):
    """The position (i64) of the greatest or least element along an axis, first or last of ties."""

    axis: int
    greatest: bool = True
    last: bool = False
    keepdims: bool = True

    family = "fold"
    samples = (
        sample("f32[2,5]", axis=1),
        sample("i32[3,7]", axis=1, greatest=False, keepdims=False),
        sample("i32[3,7]", axis=0, last=True),
        sample("i32[3,9]", axis=1, greatest=False, last=True),
    )

    def infer(self, *types: Type) -> Type:
        """i64 over the kept shape."""
        (x,) = (tensor(t, self.name) for t in types)
        check_axes((self.axis,), x, self.name)
        return TensorType(i64, kept_shape(x.shape, (self.axis,), self.keepdims))

    def reference(self, *arrays: Array) -> Array:
        """numpy argmax or argmin, of the reversed axis for the last of ties; where there is none, 0."""
        (x,) = arrays
        if not x.shape[self.axis]:
            return np.zeros(kept_shape(x.shape, (self.axis,), self.keepdims), np.int64)
        find = np.argmax if self.greatest else np.argmin
        seen = np.flip(x, self.axis) if self.last else x
        found = np.asarray(find(seen, axis=self.axis, keepdims=self.keepdims), np.int64)
        return x.shape[self.axis] - 1 - found if self.last else found

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """One fold of (value, position) per result element."""
        (operand,), (result,) = args, results
        x, at = Operand(operand), index_fold(operand.shape, (self.axis,), self.keepdims)
        monoid = f"arg{'max' if self.greatest else 'min'}{'_last' if self.last else ''}"
        position = index_value(at.operand[self.axis])
        fold = Fold(("best", "place"), monoid, at.folded, (x(*at.operand), position))
        store = Store(result.name, at.result, Name("place", i64))
        return Kernel((*args, *results), nest(at.extents, at.loops, (fold, store)))


def require_float(kind: TensorType, op: str) -> None:
    """IRError unless the elements are floats."""
    if not kind.dtype.is_float:
        raise IRError(f"{op} takes floats, got {kind}")


def reduced(monoid: str, x: Node, axes: tuple[int, ...], keepdims: bool = True) -> Node:
    """The fold of `x` over `axes`; `x` itself when there are none."""
    return Node(Reduce(monoid, axes, keepdims), (x,)) if axes else x


def mean_of(x: Node, axes: tuple[int, ...], keepdims: bool = True) -> Node:
    """The mean over `axes`; integers truncate."""
    total = reduced("sum", x, axes, keepdims)
    count = prod((x.tensor.shape[a] for a in axes), start=1)
    if isinstance(count, int):
        return Node(Div(), (total, constant(count, total)))
    return Node(Div(), (total, converted(extent_of(x, axes), total.tensor.dtype)))


def widened(x: Node) -> Node:
    """`x` in f32 if its dtype is a narrower float, so that steps between folds are not rounded."""
    return converted(x, accumulator(x.tensor.dtype))


def as_like(value: Node, dtype: DType) -> Node:
    """`value` rounded back to `dtype`."""
    return converted(value, dtype)


def reduction_axes(call: OnnxCall) -> tuple[int, ...]:
    """The axes of a Reduce* node, ascending; none given means all, unless noop_with_empty_axes."""
    rank = call.arg(0).tensor.rank
    given, nothing = call.axes(1), call.attr("noop_with_empty_axes", 0)
    if not given:
        return () if nothing else tuple(range(rank))
    return tuple(sorted({axis_of(a, rank, call) for a in given}))


def _keep(call: OnnxCall) -> bool:
    return bool(call.attr("keepdims", 1))


def _plain(call: OnnxCall, monoid: str) -> Node:
    return reduced(monoid, call.arg(0), reduction_axes(call), _keep(call))


@onnx("ReduceSum")
def import_reduce_sum(call: OnnxCall) -> Node:
    """Sum over axes."""
    return _plain(call, "sum")


@onnx("ReduceProd")
def import_reduce_prod(call: OnnxCall) -> Node:
    """Product over axes."""
    return _plain(call, "prod")


@onnx("ReduceMax")
def import_reduce_max(call: OnnxCall) -> Node:
    """Maximum over axes; of truth values, whether any holds."""
    return _plain(call, "any" if call.arg(0).tensor.dtype is bool_ else "max")


@onnx("ReduceMin")
def import_reduce_min(call: OnnxCall) -> Node:
    """Minimum over axes; of truth values, whether all hold."""
    return _plain(call, "all" if call.arg(0).tensor.dtype is bool_ else "min")


@onnx("ReduceMean")
def import_reduce_mean(call: OnnxCall) -> Node:
    """Mean over axes."""
    x, axes = call.arg(0), reduction_axes(call)
    return as_like(mean_of(widened(x), axes, _keep(call)), x.tensor.dtype) if axes else x


def _mapped(call: OnnxCall, before: Callable[[Node], Node], after: Callable[[Node], Node]) -> Node:
    """after(sum(before(x))), in f32 for narrower floats."""
    x = call.arg(0)
    total = reduced("sum", before(widened(x)), reduction_axes(call), _keep(call))
    return as_like(after(total), x.tensor.dtype)


def squared(x: Node) -> Node:
    """x * x."""
    return Node(Mul(), (x, x))


def _same(x: Node) -> Node:
    return x


@onnx("ReduceSumSquare")
def import_reduce_sum_square(call: OnnxCall) -> Node:
    """Sum of squares over axes."""
    return _mapped(call, squared, _same)


@onnx("ReduceL1")
def import_reduce_l1(call: OnnxCall) -> Node:
    """Sum of magnitudes over axes."""
    return _mapped(call, lambda x: Node(Abs(), (x,)), _same)


@onnx("ReduceL2")
def import_reduce_l2(call: OnnxCall) -> Node:
    """Square root of the sum of squares over axes."""
    x = call.arg(0)
    if x.tensor.dtype.is_int:
        raise call.refuse("of integers", "cast to a float first")
    return _mapped(call, squared, lambda total: Node(Sqrt(), (total,)))


@onnx("ReduceLogSum")
def import_reduce_log_sum(call: OnnxCall) -> Node:
    """Logarithm of the sum over axes."""
    return _mapped(call, _same, lambda total: Node(Log(), (total,)))


@onnx("ReduceLogSumExp")
def import_reduce_log_sum_exp(call: OnnxCall) -> Node:
    """Logarithm of the sum of exponentials over axes, without overflow."""
    x, axes = call.arg(0), reduction_axes(call)
    if not axes:
        return Node(Log(), (Node(Exp(), (x,)),))
    return Node(LogSumExp(axes, _keep(call)), (x,))


def _arg_extreme(call: OnnxCall, greatest: bool) -> Node:
    x = call.arg(0)
    axis = axis_of(call.attr("axis", 0), x.tensor.rank, call)
    call.at_least(x.tensor.shape[axis], 1, "tells the place of one of its elements")
    last = bool(call.attr("select_last_index", 0))
    return Node(ArgExtreme(axis, greatest, last, _keep(call)), (x,))


@onnx("ArgMax")
def import_arg_max(call: OnnxCall) -> Node:
    """Position of the maximum."""
    return _arg_extreme(call, greatest=True)


@onnx("ArgMin")
def import_arg_min(call: OnnxCall) -> Node:
    """Position of the minimum."""
    return _arg_extreme(call, greatest=False)
