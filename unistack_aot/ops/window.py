"""Sliding windows: their geometry, folds over them, pooling. Not here: convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import TensorType, Type
from unistack_aot.base.dtypes import dtype_of, f32
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, ceildiv, maximum, minimum, symbol
from unistack_aot.ir.scalar import Name, Scalar, all_of, cast, index_value, where
from unistack_aot.mcir.monoids import MONOIDS
from unistack_aot.mcir.nodes import Axis, Fold, Kernel, Param, Store
from unistack_aot.ops.convert import converted
from unistack_aot.ops.core import constant
from unistack_aot.ops.fold import fold_array, identity_of, mean_of, reduced, squared, widened
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import MapOp, Operand, TensorOp, axes_of, nest, sample
from unistack_aot.ops.pointwise import Abs, Div, Pow, Sqrt


@dataclass(frozen=True)
class Window:
    """Geometry of a window that slides over some axes: per axis taps, stride, dilation and padding.

    `rounding` says how many positions there are: "floor" (whole windows only), "ceil" (a last
    partial window, if it starts inside the operand or its front padding), "same" (one per stride).
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Dim, ...]
    after: tuple[Dim, ...]
    rounding: str = "floor"

    def span(self, k: int) -> int:
        """Elements from the first tap to the last of axis `k`."""
        return self.dilations[k] * (self.kernel[k] - 1) + 1

    def positions(self, extents: Sequence[Dim]) -> tuple[Dim, ...]:
        """The number of windows per axis; the formula of ONNX pooling and convolution."""
        found: list[Dim] = []
        for k, extent in enumerate(extents):
            stride = self.strides[k]
            room = extent + self.before[k] + self.after[k] - self.span(k)
            if self.rounding == "same":
                found.append(ceildiv(extent, stride))
            elif self.rounding == "ceil":
                inside = ceildiv(extent + self.before[k], stride)
                found.append(minimum(ceildiv(room, stride) + 1, inside))
            else:
                found.append(room // stride + 1)
            if isinstance(found[-1], int) and found[-1] < 1:
                raise IRError(f"a window of {self.span(k)} does not fit an extent of {extent}")
        return tuple(found)

    def at(self, outer: Sequence[Dim], taps: Sequence[Dim]) -> tuple[Dim, ...]:
        """Where window `outer` reads its tap `taps`."""
        steps = zip(outer, self.strides, taps, self.dilations, self.before, strict=True)
        return tuple(o * stride + t * step - pad for o, stride, t, step, pad in steps)

    def inside(self, extents: Sequence[Dim], at: Sequence[Dim]) -> Scalar | None:
        """Whether `at` lies in the operand; None if every window always does."""
        conditions: list[Scalar] = []
        counts = self.positions(extents)
        for k, (extent, where_) in enumerate(zip(extents, at, strict=True)):
            if self.before[k] != 0:
                conditions.append(index_value(where_) >= 0)
            last = (counts[k] - 1) * self.strides[k] - self.before[k] + self.span(k) - 1
            fits = self.after[k] == 0 and self.rounding == "floor"
            if not fits and not (isinstance(d := last - extent, int) and d < 0):
                conditions.append(index_value(where_) < index_value(extent))
        return all_of(*conditions) if conditions else None

    def view(self, x: Array, axes: Sequence[int], fill: float) -> Array:
        """All windows of an array: `axes` become window positions, taps are the new last axes."""
        counts = self.positions([x.shape[a] for a in axes])
        pads = [(0, 0)] * x.ndim
        for k, axis in enumerate(axes):
            before, count = self.before[k], counts[k]
            if not isinstance(before, int) or not isinstance(count, int):
                raise IRError("symbolic padding has no value before shapes bind")
            reach = (count - 1) * self.strides[k] + self.span(k) - x.shape[axis] - before
            pads[axis] = (before, max(reach, 0))
        padded = np.pad(x, pads, constant_values=fill)
        spans = tuple(self.span(k) for k in range(len(axes)))
        seen = sliding_window_view(padded, spans, tuple(axes))
        cut: list[slice] = [slice(None)] * seen.ndim
        for k, axis in enumerate(axes):
            cut[axis] = slice(0, None, self.strides[k])
            cut[x.ndim + k] = slice(None, None, self.dilations[k])
        taken = seen[tuple(cut)]
        return taken[
            tuple(slice(counts[axes.index(a)]) if a in axes else slice(None) for a in range(x.ndim))
        ]

    @property
    def pads(self) -> bool:
        """Whether some padding is not zero."""
        return any(p != 0 for p in (*self.before, *self.after))


def sliding(
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    before: Sequence[Dim] = (),
    after: Sequence[Dim] = (),
    rounding: str = "floor",
) -> Window:
    """A window with strides and dilations of 1 and no padding where they are not given."""
    rank = len(kernel)
    return Window(
        tuple(kernel),
        tuple(strides) or (1,) * rank,
        tuple(dilations) or (1,) * rank,
        tuple(before) or (0,) * rank,
        tuple(after) or (0,) * rank,
        rounding,
    )


def onnx_window(call: OnnxCall, kernel: Sequence[int], extents: Sequence[Dim]) -> Window:
    """The geometry that strides, dilations, pads, auto_pad and ceil_mode of a node give."""
    rank = len(extents)
    if len(kernel) != rank:
        raise call.refuse(
            f"with a kernel of rank {len(kernel)} over {rank} axes", "the model is malformed"
        )
    strides = tuple(call.attr("strides", (1,) * rank))
    dilations = tuple(call.attr("dilations", (1,) * rank))
    for name, numbers in (("kernel", kernel), ("strides", strides), ("dilations", dilations)):
        if any(number < 1 for number in numbers):
            raise call.refuse(f"with {name} {list(numbers)}", "each must be 1 or more")
    if any(pad < 0 for pad in call.attr("pads", ())):
        raise call.refuse("with negative pads", "crop with Slice before it")
    auto = call.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        free = sliding(kernel, strides, dilations)
        before, after = _same_pads(free, extents, lower=auto == "SAME_LOWER")
        return sliding(kernel, strides, dilations, before, after, "same")
    pads = tuple(call.attr("pads", (0,) * 2 * rank)) if auto == "NOTSET" else (0,) * 2 * rank
    rounding = "ceil" if call.attr("ceil_mode", 0) else "floor"
    return sliding(kernel, strides, dilations, pads[:rank], pads[rank:], rounding)


def _same_pads(free: Window, extents: Sequence[Dim], lower: bool) -> tuple[list[Dim], list[Dim]]:
    before: list[Dim] = []
    after: list[Dim] = []
    for k, extent in enumerate(extents):
        stride = free.strides[k]
        if stride == 1:
            total: Dim = free.span(k) - 1
        else:
            total = maximum((ceildiv(extent, stride) - 1) * stride + free.span(k) - extent, 0)
        small = total // 2
        before.append(total - small if lower else small)
        after.append(small if lower else total - small)
    return before, after


@dataclass(frozen=True)
class WindowFold(TensorOp):
    """The monoid's fold over each window along `axes`; padding holds the monoid's identity."""

    monoid: str
    axes: tuple[int, ...]
    window: Window

    family = "fold"
    samples = (
        sample(
            "f32[1,2,7,7]",
            monoid="max",
            axes=(2, 3),
            window=sliding((3, 3), (2, 2), (), (1, 1), (1, 1)),
        ),
        sample(
            "f32[1,2,7]", monoid="max", axes=(2,), window=sliding((2,), (2,), (), (), (), "ceil")
        ),
        sample("i8[1,1,6,5]", monoid="max", axes=(2, 3), window=sliding((2, 2), (1, 2))),
        sample("f16[1,2,8]", monoid="sum", axes=(2,), window=sliding((3,), (1,), (2,), (1,), (2,))),
        sample("f32[1,5,3]", monoid="sum", axes=(1,), window=sliding((3,), (), (), (1,), (1,))),
        sample(
            "f32[1,1,5,5]",
            monoid="sum",
            axes=(2, 3),
            window=sliding((2, 3), (2, 2), (), (0, 1), (1, 1), "same"),
        ),
    )

    def infer(self, *types: Type) -> Type:
        """Window counts along `axes`."""
        (x,) = (tensor(t, self.name) for t in types)
        counts = self.window.positions([x.shape[a] for a in self.axes])
        shape = list(x.shape)
        for axis, count in zip(self.axes, counts, strict=True):
            shape[axis] = count
        return x.with_shape(tuple(shape))

    def reference(self, *arrays: Array) -> Array:
        """The numpy reduction of all windows."""
        (x,) = arrays
        taps = tuple(range(x.ndim, x.ndim + len(self.axes)))
        start = identity_of(self.monoid, dtype_of(x.dtype))
        return fold_array(self.monoid, self.window.view(x, self.axes, start), taps, False)

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """Loops over windows around one fold over taps."""
        (operand,), (result,) = args, results
        x, index = Operand(operand), axes_of(result.shape)
        taps = tuple(symbol(f"t{k}") for k in range(len(self.axes)))
        at = self.window.at([index[a] for a in self.axes], taps)
        place: list[Dim] = list(index)
        for axis, where_ in zip(self.axes, at, strict=True):
            place[axis] = where_
        monoid = MONOIDS[self.monoid]
        (wide,) = monoid.fields((x.dtype,))
        value = cast(wide, x(*place))
        inside = self.window.inside([operand.shape[a] for a in self.axes], at)
        if inside is not None:
            value = where(inside, value, monoid.identity((x.dtype,))[0])
        axes = tuple(Axis(str(t), n) for t, n in zip(taps, self.window.kernel, strict=True))
        fold = Fold(("acc",), self.monoid, axes, (value,))
        store = Store(result.name, index, cast(result.dtype, Name("acc", wide)))
        return Kernel((*args, *results), nest(result.shape, index, (fold, store)))


@dataclass(frozen=True)
class WindowCount(MapOp):
    """How many taps of each window lie inside `extents` (f32); `padded` counts padding as well."""

    extents: tuple[Dim, ...]
    window: Window
    padded: bool = False

    family = "fold"
    samples = (
        sample(extents=(7, 7), window=sliding((3, 3), (2, 2), (), (1, 1), (1, 1))),
        sample(extents=(8,), window=sliding((3,), (2,), (2,), (1,), (1,), "ceil")),
        sample(extents=(8,), window=sliding((3,), (2,), (2,), (1,), (1,), "ceil"), padded=True),
    )

    def infer(self, *types: Type) -> Type:
        """f32 over window positions."""
        return TensorType(f32, self.window.positions(self.extents))

    def reference(self, *arrays: Array) -> Array:
        """Counted tap by tap."""
        result = np.ones((), np.float32)
        for k, count in enumerate(self.window.positions(self.extents)):
            low, high = self._limits(k)
            if not (isinstance(count, int) and isinstance(low, int) and isinstance(high, int)):
                raise IRError("symbolic dimensions have no value before shapes are bound")
            starts = np.arange(count)[:, None] * self.window.strides[k]
            at = starts + np.arange(self.window.kernel[k])[None] * self.window.dilations[k]
            inside = np.sum((at >= low) & (at < high), axis=1).astype(np.float32)
            result = result[..., None] * inside
        return result

    def _limits(self, k: int) -> tuple[Dim, Dim]:
        """The counted range, from the start of the front padding."""
        before, extent = self.window.before[k], self.extents[k]
        return (
            (0, before + extent + self.window.after[k])
            if self.padded
            else (before, before + extent)
        )

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The product over axes of the count of taps with low <= o stride + t dilation < high."""
        count: Dim = 1
        for k, o in enumerate(index):
            low, high = self._limits(k)
            start, step = o * self.window.strides[k], self.window.dilations[k]
            first = ceildiv(maximum(low - start, 0), step)
            stop = minimum(ceildiv(high - start, step), self.window.kernel[k])
            count = count * (stop - first)
        return cast(f32, index_value(count))


def _spatial(call: OnnxCall) -> tuple[tuple[int, ...], tuple[Dim, ...]]:
    shape = call.arg(0).tensor.shape
    if len(shape) < 3:
        raise call.refuse(f"of {call.arg(0).tensor}", "it takes [batch, channels, spatial...]")
    return tuple(range(2, len(shape))), shape[2:]


def _pool(call: OnnxCall) -> tuple[tuple[int, ...], Window]:
    axes, extents = _spatial(call)
    return axes, onnx_window(call, tuple(call.attributes["kernel_shape"]), extents)


@onnx("MaxPool")
def import_max_pool(call: OnnxCall) -> Node:
    """Maximum over windows."""
    if call.outputs > 1:
        raise call.refuse("with its Indices output", "export without it; unpooling needs it")
    call.ignore("storage_order")  # of the indices
    axes, geometry = _pool(call)
    return Node(WindowFold("max", axes, geometry), (call.arg(0),))


@onnx("AveragePool")
def import_average_pool(call: OnnxCall) -> Node:
    """Mean over windows, padding counted or not."""
    x = call.arg(0)
    axes, geometry = _pool(call)
    total = Node(WindowFold("sum", axes, geometry), (widened(x),))
    padded = bool(call.attr("count_include_pad", 0))
    extents = tuple(x.tensor.shape[a] for a in axes)
    partial = geometry.rounding == "ceil" or (geometry.pads and not padded)
    if partial:
        count = converted(Node(WindowCount(extents, geometry, padded)), total.tensor.dtype)
    else:
        count = constant(prod(geometry.kernel), total)
    return converted(Node(Div(), (total, count)), x.tensor.dtype)


def _power_mean(call: OnnxCall, fold: WindowFold | None) -> Node:
    """The p-norm over windows (or, without a window, over all spatial axes)."""
    x, p = call.arg(0), call.attr("p", 2)
    wide = widened(x)
    raised = squared(wide) if p == 2 else Node(Abs(), (wide,))
    if p > 2:
        raised = Node(Pow(), (raised, constant(p, raised)))
    total = reduced("sum", raised, _spatial(call)[0]) if fold is None else Node(fold, (raised,))
    if p == 2:
        total = Node(Sqrt(), (total,))
    elif p > 2:
        total = Node(Pow(), (total, constant(1.0 / p, total)))
    return converted(total, x.tensor.dtype)


@onnx("LpPool", since=2)
def import_lp_pool(call: OnnxCall) -> Node:
    """p-norm over windows."""
    axes, geometry = _pool(call)
    return _power_mean(call, WindowFold("sum", axes, geometry))


@onnx("GlobalLpPool", since=2)
def import_global_lp_pool(call: OnnxCall) -> Node:
    """p-norm over all spatial axes."""
    return _power_mean(call, None)


@onnx("GlobalAveragePool")
def import_global_average_pool(call: OnnxCall) -> Node:
    """Mean over all spatial axes."""
    x = call.arg(0)
    return converted(mean_of(widened(x), _spatial(call)[0]), x.tensor.dtype)


@onnx("GlobalMaxPool")
def import_global_max_pool(call: OnnxCall) -> Node:
    """Maximum over all spatial axes."""
    return reduced("max", call.arg(0), _spatial(call)[0])
