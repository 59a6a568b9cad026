"""Convolutions: contractions whose operand index is a window. Not here: pooling (window.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Along, Array, tensor
from unistack_aot.aicf.types import Shape, TensorType, Type
from unistack_aot.base.dtypes import dtype_of
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, Sym, symbol
from unistack_aot.ir.scalar import Scalar, all_of, call, cast, index_value, literal, where
from unistack_aot.mcir.nodes import Axis, Kernel, Param
from unistack_aot.ops.contract import product_dtypes, sum_and_store
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Operand, TensorOp, agree, nest, sample
from unistack_aot.ops.pointwise import Add
from unistack_aot.ops.reindex import reshape, static
from unistack_aot.ops.window import Window, onnx_window, sliding


class ConvolutionFamily(TensorOp, abstract=True):
    """Ops on x[batch, channels, spatial...] and a weight with the channels of `groups` groups."""

    family = "contract"
    window: Window
    groups: int

    def checked(self, types: tuple[Type, ...]) -> tuple[TensorType, TensorType]:
        """Operand types; IRError if ranks, channels or taps do not fit."""
        x, w = (tensor(t, self.name) for t in types)
        rank = len(self.window.kernel)
        if x.rank != rank + 2 or w.rank != rank + 2 or w.shape[2:] != self.window.kernel:
            raise IRError(f"{self.name} of {x} by {w} with {rank} spatial axes")
        lead = w.shape[0]
        if not isinstance(lead, int) or lead % self.groups:
            raise IRError(f"{self.name}: {lead} channels of {w} in {self.groups} groups")
        return x, w


@dataclass(frozen=True)
class Convolve(ConvolutionFamily):
    """y[n, gm, o] = sum over c, taps of x[n, gc, sliding(o, taps)] w[gm, c, taps]; outside is 0."""

    window: Window
    groups: int = 1

    samples = (
        sample("f32[1,3,6,6], f32[4,3,3,3]", window=sliding((3, 3), (), (), (1, 1), (1, 1))),
        sample("f32[2,3,7,6], f32[2,3,3,2]", window=sliding((3, 2), (2, 2), (1, 2))),
        sample(
            "f32[1,4,6,6], f32[4,1,3,3]",
            window=sliding((3, 3), (2, 2), (), (0, 1), (1, 1)),
            groups=4,
        ),
        sample("f32[1,4,6,6], f32[6,2,1,1]", window=sliding((1, 1)), groups=2),
        sample("f16[1,8,9], f16[4,8,3]", window=sliding((3,), (2,), (), (1,), (1,))),
        sample("u8[1,3,5,5], i8[2,3,3,3]", window=sliding((3, 3), (), (), (1, 1), (1, 1))),
        sample("f32[1,2,3,4,5], f32[2,2,2,2,2]", window=sliding((2, 2, 2))),
        sample("f64[1,4,9], f64[8,1,3]", window=sliding((3,)), groups=4),
        sample("f32[N,2,H,W], f32[3,2,2,2]", window=sliding((2, 2), (1, 2), (), (1, 0), (0, 1))),
    )

    def sums(self) -> bool:
        """Over channels and taps."""
        return True

    def along(self, at: int, *types: Type) -> Along | None:
        """The weight's filters along result channels; its channels along those of x, if in no groups."""
        if at != 1:
            return None
        if self.groups == 1:
            return Along({1: 0}, {1: 1}, (0,))
        x, w = self.checked(types)
        depthwise = self.groups == x.shape[1] == w.shape[0]
        return Along({1: 0}, {1: 0} if depthwise else {})

    def infer(self, *types: Type) -> Type:
        """Window counts; the dtype of the products' sums."""
        x, w = self.checked(types)
        what = f"{self.name} of {x} by {w} in {self.groups} groups"
        agree(x.shape[1:2], (w.shape[1] * self.groups,), what)
        _, dtype = product_dtypes(x.dtype, w.dtype, self.name)
        return TensorType(dtype, (x.shape[0], w.shape[0], *self.window.positions(x.shape[2:])))

    def reference(self, *arrays: Array) -> Array:
        """einsum of all windows, in the accumulator's dtype."""
        x, w = arrays
        wide, dtype = product_dtypes(dtype_of(x.dtype), dtype_of(w.dtype), self.name)
        spatial = len(self.window.kernel)
        seen = self.window.view(x.astype(wide.numpy), tuple(range(2, x.ndim)), 0)
        g = self.groups
        seen = seen.reshape(x.shape[0], g, x.shape[1] // g, *seen.shape[2:])
        filters = w.astype(wide.numpy).reshape(g, w.shape[0] // g, *w.shape[1:])
        outs, taps = ascii_lowercase[:spatial], ascii_lowercase[spatial : 2 * spatial]
        equation = f"NGC{outs}{taps},GMC{taps}->NGM{outs}"
        with np.errstate(all="ignore"):
            result = np.einsum(equation, seen, filters, optimize=True)
        shape = (x.shape[0], w.shape[0], *result.shape[3:])
        return result.reshape(shape).astype(dtype.numpy)

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """Loops over the result around one sum over channels and taps."""
        (result,) = results
        x, w = (Operand(p) for p in args)
        wide, _ = product_dtypes(x.dtype, w.dtype, self.name)
        outer = tuple(symbol(f"o{k}") for k in range(len(self.window.kernel)))
        taps = tuple(symbol(f"t{k}") for k in range(len(outer)))
        channels = GroupedChannels.of(self.groups, w.shape[0], w.shape[1])
        at = self.window.at(outer, taps)
        value = cast(wide, x(symbol("n"), channels.folded, *at))
        inside = self.window.inside(x.shape[2:], at)
        if inside is not None:
            value = where(inside, value, literal(0, wide))
        product = value * cast(wide, w(channels.kept, channels.inner, *taps))
        axes = (*channels.fold, *_tap_axes(self.window, taps))
        index = (symbol("n"), channels.kept, *outer)
        loops = (Axis("n", result.shape[0]), *channels.loops, *_axes(outer, result.shape[2:]))
        body = sum_and_store(product, axes, result, index)
        return Kernel((*args, *results), nest(*_split(loops), body))


@dataclass(frozen=True)
class ConvolveTranspose(ConvolutionFamily):
    """The adjoint of Convolve: each element adds its window to the result, cropped by padding.

    w is [channels in, channels out per group, taps...]; `extra` is output_padding.
    """

    window: Window
    groups: int = 1
    extra: tuple[int, ...] = ()

    samples = (
        sample("f32[1,3,4,4], f32[3,2,2,2]", window=sliding((2, 2), (2, 2))),
        sample(
            "f32[1,3,4,4], f32[3,2,3,3]",
            window=sliding((3, 3), (2, 2), (), (1, 1), (1, 1)),
            extra=(1, 1),
        ),
        sample("f32[2,4,5], f32[4,3,3]", window=sliding((3,), (2,), (2,), (1,), (0,)), groups=2),
        sample("f16[1,4,5], f16[4,1,3]", window=sliding((3,)), groups=4),
    )

    def positions(self, extents: Shape) -> tuple[Dim, ...]:
        """stride (extent - 1) + output_padding + span - pads."""
        geometry, found = self.window, list[Dim]()
        for k, extent in enumerate(extents):
            grown = (extent - 1) * geometry.strides[k] + geometry.span(k)
            extra = self.extra[k] if self.extra else 0
            found.append(grown + extra - geometry.before[k] - geometry.after[k])
        return tuple(found)

    def along(self, at: int, *types: Type) -> Along | None:
        """The weight's filters along result channels, its channels along those of x, if in no groups."""
        return Along({1: 1}, {1: 0}, (1,)) if at == 1 and self.groups == 1 else None

    def infer(self, *types: Type) -> Type:
        """Grown extents; the dtype of the products' sums."""
        x, w = self.checked(types)
        agree(x.shape[1:2], w.shape[:1], f"{self.name} of {x} by {w}")
        _, dtype = product_dtypes(x.dtype, w.dtype, self.name)
        shape = (x.shape[0], w.shape[1] * self.groups, *self.positions(x.shape[2:]))
        return TensorType(dtype, shape)

    def reference(self, *arrays: Array) -> Array:
        """Each tap's products added to a strided slice of the uncropped result."""
        x, w = arrays
        wide, dtype = product_dtypes(dtype_of(x.dtype), dtype_of(w.dtype), self.name)
        geometry, g = self.window, self.groups
        source = x.astype(wide.numpy).reshape(x.shape[0], g, x.shape[1] // g, -1)
        filters = w.astype(wide.numpy).reshape(g, w.shape[0] // g, *w.shape[1:])
        wanted = static(self.positions(x.shape[2:]), "extents")
        before = static(geometry.before, "padding")
        full = np.zeros((x.shape[0], g * w.shape[1], *self._uncropped(x.shape[2:])), wide.numpy)
        for taps in np.ndindex(*w.shape[2:]):
            part = np.einsum("ngci,gcm->ngmi", source, filters[(slice(None),) * 3 + taps])
            starts = [t * d for t, d in zip(taps, geometry.dilations, strict=True)]
            steps = zip(starts, geometry.strides, x.shape[2:], strict=True)
            spots = tuple(slice(start, start + (n - 1) * s + 1, s) for start, s, n in steps)
            full[(slice(None), slice(None), *spots)] += part.reshape(*full.shape[:2], *x.shape[2:])
        crop = tuple(slice(b, b + n) for b, n in zip(before, wanted, strict=True))
        return full[(slice(None), slice(None), *crop)].astype(dtype.numpy)

    def _uncropped(self, extents: Sequence[int]) -> tuple[int, ...]:
        """Extents that hold every product and every result element, padding included."""
        wanted = static(self.positions(tuple(extents)), "extents")
        before = static(self.window.before, "padding")
        reach = [(n - 1) * s for n, s in zip(extents, self.window.strides, strict=True)]
        return tuple(
            max(last + self.window.span(k), before[k] + wanted[k]) for k, last in enumerate(reach)
        )

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """Loops over the result around one sum over channels and the taps that reach it."""
        (result,) = results
        x, w = (Operand(p) for p in args)
        if self._apart():
            return self._lower_apart(x, w, args, results)
        wide, _ = product_dtypes(x.dtype, w.dtype, self.name)
        outer = tuple(symbol(f"o{k}") for k in range(len(self.window.kernel)))
        taps = tuple(symbol(f"t{k}") for k in range(len(outer)))
        channels = GroupedChannels.of(
            self.groups, w.shape[1] * self.groups, _over(w.shape[0], self.groups)
        )
        at, hits = self._source(outer, taps, x.shape[2:])
        value = where(hits, cast(wide, x(symbol("n"), channels.folded, *at)), literal(0, wide))
        product = value * cast(wide, w(channels.folded, channels.place, *taps))
        axes = (*channels.fold, *_tap_axes(self.window, taps))
        index = (symbol("n"), channels.kept, *outer)
        loops = (Axis("n", result.shape[0]), *channels.loops, *_axes(outer, result.shape[2:]))
        body = sum_and_store(product, axes, result, index)
        return Kernel((*args, *results), nest(*_split(loops), body))

    def _apart(self) -> bool:
        """Whether every result element is reached by exactly one tap: windows that tile the result."""
        geometry = self.window
        plain = all(d == 1 for d in geometry.dilations) and not any(self.extra)
        pads = any(p != 0 for p in (*geometry.before, *geometry.after))
        return plain and not pads and tuple(geometry.kernel) == tuple(geometry.strides)

    def _lower_apart(
        self, x: Operand, w: Operand, args: tuple[Param, ...], results: tuple[Param, ...]
    ) -> Kernel:
        """Loops over input positions and taps, which together number the result: a product without conditions."""
        (result,) = results
        wide, _ = product_dtypes(x.dtype, w.dtype, self.name)
        rank = len(self.window.kernel)
        at, taps = (tuple(symbol(f"{name}{k}") for k in range(rank)) for name in ("o", "t"))
        channels = GroupedChannels.of(
            self.groups, w.shape[1] * self.groups, _over(w.shape[0], self.groups)
        )
        product = cast(wide, x(symbol("n"), channels.folded, *at)) * cast(
            wide, w(channels.folded, channels.place, *taps)
        )
        spread = zip(at, self.window.strides, taps, strict=True)
        index = (symbol("n"), channels.kept, *(o * stride + t for o, stride, t in spread))
        pairs = zip(_axes(at, x.shape[2:]), _tap_axes(self.window, taps), strict=True)
        inner = (axis for pair in pairs for axis in pair)
        loops = (Axis("n", result.shape[0]), *channels.loops, *inner)
        body = sum_and_store(product, channels.fold, result, index)
        return Kernel((*args, *results), nest(*_split(loops), body))

    def _source(
        self, outer: tuple[Dim, ...], taps: tuple[Dim, ...], extents: Shape
    ) -> tuple[tuple[Dim, ...], Scalar]:
        """Which input element reaches result `outer` by tap `taps`, and whether there is one."""
        geometry, places, hits = self.window, list[Dim](), list[Scalar]()
        for k, extent in enumerate(extents):
            stride = geometry.strides[k]
            reach = outer[k] + geometry.before[k] - taps[k] * geometry.dilations[k]
            place = reach // stride
            if stride > 1:
                hits.append(call("eq", index_value(reach % stride), 0))
            hits += [index_value(reach) >= 0, index_value(place) < index_value(extent)]
            places.append(place)
        return tuple(places), all_of(*hits)


@dataclass(frozen=True)
class GroupedChannels:
    """Index expressions of grouped channels: `kept` counts result channels, `folded` the others.

    `inner` is the folded channel inside its group, `place` the kept channel inside its group.
    Groups with one kept channel each need no loop of their own.
    """

    kept: Dim
    place: Dim
    folded: Dim
    inner: Dim
    loops: tuple[Axis, ...]
    fold: tuple[Axis, ...]

    @staticmethod
    def of(groups: int, total: Dim, per_group: Dim) -> GroupedChannels:
        """`total` kept channels in `groups` groups, each summed over `per_group` channels."""
        inner: Dim = 0 if per_group == 1 else symbol("c")
        fold = () if per_group == 1 else (Axis("c", per_group),)
        each = _over(total, groups)
        if groups == 1:
            return GroupedChannels(
                symbol("m"), symbol("m"), inner, inner, (Axis("m", total),), fold
            )
        group, place = symbol("g"), symbol("m")
        folded = group * per_group + inner
        if each == 1:
            return GroupedChannels(group, 0, folded, inner, (Axis("g", groups),), fold)
        loops = (Axis("g", groups), Axis("m", each))
        return GroupedChannels(group * each + place, place, folded, inner, loops, fold)


def _over(total: Dim, groups: int) -> Dim:
    return total // groups


def _axes(names: tuple[Dim, ...], extents: Shape) -> tuple[Axis, ...]:
    return tuple(Axis(str(name), extent) for name, extent in zip(names, extents, strict=True))


def _tap_axes(geometry: Window, taps: tuple[Dim, ...]) -> tuple[Axis, ...]:
    return _axes(taps, geometry.kernel)


def _split(loops: tuple[Axis, ...]) -> tuple[Shape, tuple[Sym, ...]]:
    return tuple(a.extent for a in loops), tuple(symbol(a.var) for a in loops)


def per_channel(vector: Node, rank: int) -> Node:
    """A [channels] vector shaped to broadcast over [batch, channels, spatial...] of this rank."""
    return reshape(vector, (vector.tensor.shape[0], *((1,) * (rank - 2))))


def with_bias(result: Node, bias: Node | None) -> Node:
    """`result` plus a per-channel bias, if there is one."""
    if bias is None:
        return result
    return Node(Add(), (result, per_channel(bias, result.tensor.rank)))


def kernel_of(call: OnnxCall, weight: Node) -> tuple[int, ...]:
    """The taps per axis, from the weight's shape; it must be known."""
    found = tuple(d for d in weight.tensor.shape[2:] if isinstance(d, int))
    if len(found) != weight.tensor.rank - 2:
        raise call.refuse(
            f"with the weight {weight.tensor}", "the kernel's extents must be numbers"
        )
    if (said := tuple(call.attr("kernel_shape", found))) != found:
        raise IRError(f"kernel_shape {said} with the weight {weight.tensor}")
    return found


@onnx("Conv")
def import_conv(call: OnnxCall) -> Node:
    """Convolution of 1, 2 or 3 spatial axes, with groups and bias."""
    x, w = call.arg(0), call.arg(1)
    geometry = onnx_window(call, kernel_of(call, w), x.tensor.shape[2:])
    result = Node(Convolve(geometry, call.attr("group", 1)), (x, w))
    return with_bias(result, call.optional(2))


@onnx("ConvTranspose")
def import_conv_transpose(call: OnnxCall) -> Node:
    """Transposed convolution; output_shape and auto_pad determine the padding."""
    x, w = call.arg(0), call.arg(1)
    kernel, rank = kernel_of(call, w), x.tensor.rank - 2
    strides = tuple(call.attr("strides", (1,) * rank))
    dilations = tuple(call.attr("dilations", (1,) * rank))
    extra = tuple(call.attr("output_padding", (0,) * rank))
    auto = call.attr("auto_pad", "NOTSET")
    pads: tuple[Dim, ...] = tuple(call.attr("pads", (0,) * 2 * rank))
    free = ConvolveTranspose(sliding(kernel, strides, dilations), call.attr("group", 1), extra)
    if auto == "VALID":
        pads = (0,) * 2 * rank
    elif "output_shape" in call.attributes or auto != "NOTSET":
        same = tuple(d * s for d, s in zip(x.tensor.shape[2:], strides, strict=True))
        wanted = call.attr("output_shape", same)[-rank:]
        grown = free.positions(x.tensor.shape[2:])
        pads = _cropping(grown, wanted, upper=auto == "SAME_UPPER")
    geometry = sliding(kernel, strides, dilations, pads[:rank], pads[rank:])
    result = Node(ConvolveTranspose(geometry, free.groups, extra), (x, w))
    return with_bias(result, call.optional(2))


def _cropping(grown: Shape, wanted: Shape, upper: bool) -> tuple[Dim, ...]:
    """Padding that crops `grown` to `wanted`; an odd rest goes to the end with `upper`."""
    total = [g - w for g, w in zip(grown, wanted, strict=True)]
    small = [t // 2 for t in total]
    large = [t - s for t, s in zip(total, small, strict=True)]
    return (*small, *large) if upper else (*large, *small)
