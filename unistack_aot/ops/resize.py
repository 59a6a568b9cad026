"""Resampling along axes: Resize and Upsample, nearest, linear and cubic. Not here: pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import Type
from unistack_aot.base.dtypes import f32, f64, i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, maximum, symbol, text
from unistack_aot.base.symbolic import evaluate as evaluate_dim
from unistack_aot.ir.evaluate import evaluate
from unistack_aot.ir.formula import absolute, clamp, equal, floor
from unistack_aot.ir.scalar import IndexEntry, Scalar, cast, index_value, literal, where
from unistack_aot.ir.scalar import call as scalar_call
from unistack_aot.mcir.nodes import Param
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import MapOp, Operand, sample
from unistack_aot.ops.reindex import axis_of, static

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")

Tap = tuple[Scalar | None, IndexEntry]  # weight (None: 1) and position along one axis


@dataclass(frozen=True)
class Resize(MapOp):
    """The operand resampled to `sizes`.

    `scales[k]` is the factor of axis k as f32, or None for the ratio of the extents; axes of factor
    1 are copied. The words are ONNX's; the rounding "simple" is that of opset 10.
    """

    sizes: tuple[Dim, ...]
    scales: tuple[float | None, ...]
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False

    family = "reindex"
    samples = (
        sample("f32[1,2,3,4]", sizes=(1, 2, 6, 8), scales=(1.0, 1.0, 2.0, 2.0)),
        sample(
            "f32[1,1,4,5]",
            sizes=(1, 1, 3, 9),
            scales=(None, None, None, None),
            mode="linear",
            coordinates="align_corners",
        ),
        sample("f32[1,1,5,4]", sizes=(1, 1, 7, 8), scales=(None,) * 4, mode="cubic"),
    )

    def infer(self, *types: Type) -> Type:
        """The sizes."""
        (x,) = (tensor(t, self.name) for t in types)
        if not len(self.sizes) == len(self.scales) == x.rank:
            raise IRError(f"{len(self.sizes)} sizes for {x}")
        if self.mode != "nearest" and not x.dtype.is_float:
            raise IRError(f"{self.mode} interpolation of {x.dtype}")
        if any(size != 0 and extent == 0 for size, extent in zip(self.sizes, x.shape, strict=True)):
            raise IRError(f"resizing {x}, which has no elements, to {self.sizes}")
        return x.with_shape(self.sizes)

    def taps(self, axis: int, extent: Dim, i: Dim) -> list[Tap]:
        """Weights and source positions for position `i` of the result along one axis."""
        size, scale = self.sizes[axis], self.scales[axis]
        if size == extent and (scale is None or scale == 1.0):
            return [(None, i)]
        if self.mode == "nearest":
            repeat = self._repeat(size, extent, scale)
            return [
                (None, self._nearest(i, extent, size, scale) if repeat is None else i // repeat)
            ]
        at = self._source(i, extent, size, scale)
        last = index_value(extent - 1)
        if self.mode == "linear":
            at = clamp(at, 0, cast(f32, last))
            low = cast(i64, floor(at))
            part = at - cast(f32, low)
            return [(1 - part, low), (part, scalar_call("min", low + 1, last))]
        return self._cubic_taps(at, last)

    def _repeat(self, size: Dim, extent: Dim, scale: float | None) -> int | None:
        """The whole number of times each element repeats, if the rounding amounts to that."""
        plain = (
            (
                self.coordinates in ("asymmetric", "tf_half_pixel_for_nn")
                and self.rounding == "floor"
            )
            or (self.coordinates == "asymmetric" and self.rounding == "simple")
            or (self.coordinates == "half_pixel" and self.rounding.startswith("round_"))
        )
        if scale is None and extent != 0 and isinstance(ratio := size // extent, int):
            scale = float(ratio) if ratio * extent == size else None
        if not plain or scale is None or scale < 1 or scale != int(scale):
            return None
        return int(scale) if int(scale) * extent == size else None

    def _factor(self, extent: Dim, size: Dim, scale: float | None) -> Scalar:
        if scale is not None:
            return literal(scale, f32)
        return _number(size) / _number(extent)

    def _source(self, i: Dim, extent: Dim, size: Dim, scale: float | None) -> Scalar:
        """The real-valued source position, computed in f32 as onnxruntime does."""
        x, factor = _number(i), self._factor(extent, size, scale)
        half = (x + 0.5) / factor - 0.5
        match self.coordinates:
            case "asymmetric":
                return x / factor
            case "tf_half_pixel_for_nn":
                return (x + 0.5) / factor
            case "align_corners":
                steps = _number(maximum(size - 1, 1))
                return where(equal(_number(size), 1), 0, x * _number(extent - 1) / steps)
            case "pytorch_half_pixel":
                return where(equal(_number(size), 1), 0, half)
            case "half_pixel_symmetric":
                centre = _number(extent) / 2
                exact = factor * _number(extent)
                return centre * (1 - _number(size) / exact) + (x + 0.5) / factor - 0.5
            case _:
                return half

    def _nearest(self, i: Dim, extent: Dim, size: Dim, scale: float | None) -> Scalar:
        at = self._source(i, extent, size, scale)
        match self.rounding:
            case "floor":
                rounded = floor(at)
            case "ceil":
                rounded = scalar_call("ceil", at)
            case "round_prefer_ceil":
                rounded = floor(at + 0.5)
            case "simple":  # opset 10: up when shrinking, else towards zero
                shrinks = self._factor(extent, size, scale) < 1
                rounded = where(shrinks, scalar_call("ceil", at), scalar_call("trunc", at))
            case _:
                rounded = scalar_call("ceil", at - 0.5)
        return clamp(cast(i64, rounded), 0, index_value(extent - 1))

    def _cubic_taps(self, at: Scalar, last: Scalar) -> list[Tap]:
        """Keys' cubic convolution; Robert G. Keys, 1981, doi 10.1109/TASSP.1981.1163711."""
        base = floor(at)
        part = at - base
        taps: list[tuple[Scalar, Scalar]] = []
        for offset in range(-1, 3):
            distance = absolute(part - float(offset))
            place = cast(i64, base) + offset
            weight = _keys(distance, self.cubic, near=offset in (0, 1))
            if self.exclude_outside:
                inside = equal(clamp(place, 0, last), place)
                weight = where(inside, weight, 0)
            taps.append((weight, clamp(place, 0, last)))
        if self.exclude_outside:
            total = reduce(lambda a, b: a + b, (weight for weight, _ in taps))
            taps = [(weight / total, place) for weight, place in taps]
        return list(taps)

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The sum over the taps of all axes, accumulated in f32 (f64 for f64)."""
        (x,) = operands
        per_axis = [self.taps(k, x.shape[k], i) for k, i in enumerate(index)]
        wide = f64 if x.dtype is f64 else f32
        total: Scalar | None = None
        for corner in product(*per_axis):
            value = x(*(place for _, place in corner))
            weights = [weight for weight, _ in corner if weight is not None]
            if not weights:
                return value
            weight = cast(wide, reduce(lambda a, b: a * b, weights))
            term = weight * cast(wide, value)
            total = term if total is None else total + term
        assert total is not None
        return cast(x.dtype, total)

    def reference(self, *arrays: Array) -> Array:
        """One axis after another: rows taken at the taps and weighted."""
        x = arrays[0]
        static(self.sizes, "size")
        wide = np.float64 if x.dtype == np.float64 else np.float32
        value = x if self.mode == "nearest" else x.astype(wide)
        for axis, size in enumerate(self.sizes):
            taps = self.taps(axis, x.shape[axis], symbol("i"))
            rows = [np.take(value, _at(place, size), axis) for _, place in taps]
            if taps[0][0] is None:
                value = rows[0]
                continue
            spread = tuple(-1 if k == axis else 1 for k in range(x.ndim))
            weights = [_weights(w, size).reshape(spread) for w, _ in taps]
            value = sum(w.astype(wide) * r for w, r in zip(weights, rows, strict=True))
        return np.asarray(value, x.dtype)


def _number(dim: Dim) -> Scalar:
    return literal(dim, f32) if isinstance(dim, int) else cast(f32, index_value(dim))


def _keys(distance: Scalar, a: float, near: bool) -> Scalar:
    d = distance
    if near:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def _positions(dim: Dim, size: Dim) -> Array:
    (count,) = static((size,), "size")
    return np.array([evaluate_dim(dim, {"i": i}) for i in range(count)], np.int64)


def _at(place: IndexEntry, size: Dim) -> Array:
    if not isinstance(place, Scalar):
        return _positions(place, size)
    return np.broadcast_to(
        evaluate(place, index=lambda d: _positions(d, size)), static((size,), "size")
    )


def _weights(weight: Scalar | None, size: Dim) -> Array:
    assert weight is not None
    return np.broadcast_to(
        evaluate(weight, index=lambda d: _positions(d, size)), static((size,), "size")
    )


@onnx("Upsample", since=1)
def import_upsample(call: OnnxCall) -> Node:
    """Upsample: scales as attribute (7) or input (9); coordinates are asymmetric."""
    mode = call.attr("mode", "nearest")
    given = call.attributes.get("scales")
    if given is None:
        given = call.require_constant(1, "scales").reshape(-1).tolist()
    scales = [float(np.float32(s)) for s in given]
    return _resized(call, _names(call, mode), scales, None, "asymmetric", "simple")


@onnx("Resize", since=10)
def import_resize_10(call: OnnxCall) -> Node:
    """Resize of opset 10: asymmetric coordinates only."""
    scales = [float(s) for s in call.require_constant(1, "scales").reshape(-1)]
    mode = _names(call, call.attr("mode", "nearest"))
    return _resized(call, mode, scales, None, "asymmetric", "simple")


@onnx("Resize", since=11)
def import_resize(call: OnnxCall) -> Node:
    """Resize by scales or sizes, over all or some (opset 18) axes."""
    coordinates = call.attr("coordinate_transformation_mode", "half_pixel")
    rounding = call.attr("nearest_mode", "round_prefer_floor")
    if coordinates not in COORDINATES:
        raise call.refuse(f"with coordinates {coordinates}", f"use one of {', '.join(COORDINATES)}")
    if rounding not in ROUNDINGS:
        raise call.refuse(f"with rounding {rounding}", f"use one of {', '.join(ROUNDINGS)}")
    if call.attr("antialias", 0):
        raise call.refuse("with antialias", "export without it")
    call.ignore("extrapolation_value")  # of coordinates that are refused
    scales, sizes = _factors(call)
    mode = _names(call, call.attr("mode", "nearest"))
    return _resized(call, mode, scales, sizes, coordinates, rounding)


def _names(call: OnnxCall, mode: str) -> str:
    """ONNX's mode in Resize's words; "bilinear" and "trilinear" are older names of linear."""
    found = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
    if mode not in found:
        raise call.refuse(f"with mode {mode}", f"use one of {', '.join(found)}")
    if found[mode] != "nearest" and not call.arg(0).tensor.dtype.is_float:
        raise call.refuse(f"with mode {mode} of {call.arg(0).tensor.dtype}", "resize floats")
    return found[mode]


def _factors(call: OnnxCall) -> tuple[list[float] | None, list[Dim] | None]:
    """Scales or sizes for every axis, whichever the node gives."""
    x = call.arg(0).tensor
    axes = [axis_of(int(a), x.rank, call) for a in call.attr("axes", range(x.rank))]
    known = call.constant(2)
    if known is not None and known.size:
        if len(axes) != known.size:
            raise call.refuse(f"with {known.size} scales for {len(axes)} axes", "fix the model")
        scales = [1.0] * x.rank
        for axis, scale in zip(axes, known.reshape(-1), strict=True):
            scales[axis] = float(scale)
        return scales, None
    if call.optional(3) is None:
        raise call.refuse(
            "with scales that are not constant", "export with constant scales or sizes"
        )
    wanted = call.require_dims(3, "sizes")
    if len(axes) != len(wanted):
        raise call.refuse(f"with {len(wanted)} sizes for {len(axes)} axes", "fix the model")
    sizes = list(x.shape)
    for axis, size in zip(axes, wanted, strict=True):
        sizes[axis] = call.simple(size)
    policy = call.attr("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        return _keeping_aspect(call, policy, axes, sizes)
    return None, sizes


def _keeping_aspect(
    call: OnnxCall, policy: str, axes: Sequence[int], sizes: list[Dim]
) -> tuple[list[float] | None, list[Dim]]:
    """One factor for all axes: the least (not_larger) or greatest (not_smaller) of the ratios."""
    shape = call.arg(0).tensor.shape
    try:
        wanted = static([sizes[a] for a in axes], "size")
        extents = static([shape[a] for a in axes], "extent")
    except IRError:
        raise call.refuse(f"with {policy} over symbolic extents", "fix the dimensions") from None
    ratios = [np.float32(w) / np.float32(e) for w, e in zip(wanted, extents, strict=True)]
    factor = min(ratios) if policy == "not_larger" else max(ratios)
    scales = [1.0] * len(shape)
    for axis, extent in zip(axes, extents, strict=True):
        scales[axis] = float(factor)
        sizes[axis] = int(np.floor(np.float32(factor) * np.float32(extent) + np.float32(0.5)))
    return scales, sizes


def _resized(
    call: OnnxCall,
    mode: str,
    scales: list[float] | None,
    sizes: list[Dim] | None,
    coordinates: str,
    rounding: str,
) -> Node:
    x = call.arg(0)
    if scales is not None and any(not scale > 0 for scale in scales):
        raise call.refuse(f"by {min(scales)}", "resize by numbers above 0")
    if sizes is None:
        if scales is None or len(scales) != x.tensor.rank:
            raise call.refuse(f"with {len(scales or ())} scales for {x.tensor}", "fix the model")
        pairs = zip(x.tensor.shape, scales, strict=True)
        sizes = [call.simple(_scaled(call, extent, scale)) for extent, scale in pairs]
    factors = (None,) * len(sizes) if scales is None else tuple(scales)
    steepness = float(call.attr("cubic_coeff_a", -0.75))
    inside = bool(call.attr("exclude_outside", 0))
    if tuple(sizes) == x.tensor.shape and all(f in (None, 1.0) for f in factors):
        return x
    op = Resize(tuple(sizes), factors, mode, coordinates, rounding, steepness, inside)
    return Node(op, (x,))


def _scaled(call: OnnxCall, extent: Dim, scale: float) -> Dim:
    """floor(extent * scale); exact for symbolic extents where the scale is a small fraction."""
    if isinstance(extent, int):
        return int(np.floor(np.float32(extent) * np.float32(scale)))
    fraction = Fraction(scale).limit_denominator(64)
    if np.float32(float(fraction)) != np.float32(scale):
        raise call.refuse(
            f"of {text(extent)} by {scale}", "fix the dimension, or resize by a fraction"
        )
    return extent * fraction.numerator // fraction.denominator
