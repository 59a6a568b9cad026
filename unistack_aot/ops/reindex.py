"""Reindexing ops that keep every element: reshapes, axis orders, repetition. Not here: slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import Shape, Type
from unistack_aot.base.errors import ExtentsDiffer, IRError
from unistack_aot.base.symbolic import Dim, Sym, divisible, simplify, text
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.nodes import Kernel, Param
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import MapOp, Operand, broadcast, broadcast_index, sample


class Structural(MapOp, abstract=True):
    """A map op that only moves elements, so that its reference also moves symbolic dimensions."""

    family = "reindex"
    moves = True

    def symbolic(self, *values: Array) -> Array | None:
        """The reference, where the op's own attributes hold no symbol."""
        try:
            return np.asarray(self.reference(*values), dtype=object)
        except (IRError, ValueError, TypeError):
            return None


def static(dims: Sequence[Dim], what: str) -> tuple[int, ...]:
    """Dims as ints; IRError if one is symbolic."""
    found = tuple(d for d in dims if isinstance(d, int))
    if len(found) != len(dims):
        raise IRError(f"{what} {', '.join(text(d) for d in dims)} has no value before shapes bind")
    return found


def without_common(left: Sequence[Dim], right: Sequence[Dim]) -> tuple[Dim, Dim]:
    """The products of both lists after removing the factors they share."""
    rest, kept = list(right), list[Dim]()
    for factor in left:
        if factor != 0 and factor in rest:
            rest.remove(factor)
        else:
            kept.append(factor)
    return prod(kept, start=1), prod(rest, start=1)


@dataclass(frozen=True)
class Reshape(Structural):
    """The same elements in row-major order under another shape."""

    shape: tuple[Dim, ...]

    samples = (
        sample("f32[2,12]", shape=(2, 3, 4)),
        sample("f32[4,6]", shape=(3, 8)),
        sample("i64[1,5,1]", shape=(5,)),
    )

    def infer(self, *types: Type) -> Type:
        """The new shape; ExtentsDiffer unless both have as many elements."""
        (x,) = (tensor(t, self.name) for t in types)
        old, new = without_common(x.shape, self.shape)
        if old != new:
            what = f"{x} has not as many elements as {x.with_shape(self.shape)}"
            raise ExtentsDiffer(what, old, new)
        return x.with_shape(self.shape)

    def reference(self, *arrays: Array) -> Array:
        """numpy.reshape."""
        return np.reshape(arrays[0], static(self.shape, "shape"))

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The element at the same row-major position; axes that match keep their index."""
        (x,) = operands
        return x(*regroup(result.shape, x.shape, index))

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """A copy that may be an alias."""
        kernel = super().lower(args, results)
        return Kernel(kernel.params, kernel.body, reinterprets=True)


def regroup(shape: Shape, source: Shape, index: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The index into `source` of the element at `index` of `shape`, both in row-major order.

    Leading products of extents that agree close a group: arithmetic stays inside small groups.
    """
    if any(d == 0 for d in (*shape, *source)):
        return (0,) * len(source)
    ranges = {str(i): (0, d - 1) for i, d in zip(index, shape, strict=True) if isinstance(i, Sym)}
    found: list[Dim] = []
    for axes, source_axes in _groups(shape, source):
        position: Dim = 0
        for axis in axes:
            if shape[axis] != 1:
                position = position * shape[axis] + index[axis]
        found += [simplify(i, ranges) for i in _unravel(position, [source[a] for a in source_axes])]
    return tuple(found)


def _unravel(position: Dim, extents: Sequence[Dim]) -> list[Dim]:
    found: list[Dim] = []
    for axis, extent in enumerate(extents):
        if extent == 1:
            found.append(0)
            continue
        quotient = position // prod(extents[axis + 1 :], start=1)
        outermost = all(d == 1 for d in extents[:axis])
        found.append(quotient if outermost else quotient % extent)
    return found


def _groups(left: Shape, right: Shape) -> list[tuple[range, range]]:
    """Maximal splits of both shapes into consecutive groups with equal products."""
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(left) or j < len(right):
        first, second = i, j
        a: Dim = 1
        b: Dim = 1
        while True:
            grow_left, grow_right = _behind(a, b)
            grow_left, grow_right = grow_left and i < len(left), grow_right and j < len(right)
            if not grow_left and not grow_right:
                break
            if grow_left:
                a, i = a * left[i], i + 1
            if grow_right:
                b, j = b * right[j], j + 1
            if a == b:
                break
        if a != b:  # not provably equal: one group to the end
            i, j = len(left), len(right)
        groups.append((range(first, i), range(second, j)))
    return groups


def _behind(a: Dim, b: Dim) -> tuple[bool, bool]:
    """Which of two running products must grow to meet the other."""
    if a == b:
        return True, True
    if isinstance(a, int) and isinstance(b, int):
        return a < b, b < a
    if divisible(b, a):
        return True, False
    if divisible(a, b):
        return False, True
    return True, True


@dataclass(frozen=True)
class Transpose(Structural):
    """Result axis k is operand axis perm[k]."""

    perm: tuple[int, ...]

    samples = (sample("f32[2,3,4]", perm=(2, 0, 1)), sample("i64[2,3]", perm=(1, 0)))

    def infer(self, *types: Type) -> Type:
        """Permuted extents."""
        (x,) = (tensor(t, self.name) for t in types)
        if sorted(self.perm) != list(range(x.rank)):
            raise IRError(f"perm {self.perm} does not order the {x.rank} axes of {x}")
        return x.with_shape(tuple(x.shape[axis] for axis in self.perm))

    def reference(self, *arrays: Array) -> Array:
        """numpy.transpose."""
        return np.transpose(arrays[0], self.perm)

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The element whose index is permuted back."""
        (x,) = operands
        return x(*(index[self.perm.index(axis)] for axis in range(len(self.perm))))


@dataclass(frozen=True)
class Expand(Structural):
    """The operand broadcast to `shape`, which is exactly the result's shape."""

    shape: tuple[Dim, ...]

    samples = (sample("f32[3,1]", shape=(2, 3, 4)), sample("i64[]", shape=(3,)))

    def infer(self, *types: Type) -> Type:
        """The new shape; IRError if the operand does not broadcast to it."""
        (x,) = (tensor(t, self.name) for t in types)
        if broadcast([x.shape, self.shape]) != self.shape:
            raise IRError(f"{x} does not expand to {x.with_shape(self.shape)}")
        return x.with_shape(self.shape)

    def reference(self, *arrays: Array) -> Array:
        """numpy.broadcast_to, as an array of its own."""
        return np.array(np.broadcast_to(arrays[0], static(self.shape, "shape")))

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """Index 0 along expanded axes."""
        (x,) = operands
        return x(*broadcast_index(x.shape, index))


@dataclass(frozen=True)
class Tile(Structural):
    """The operand repeated `repeats[k]` times along each axis k."""

    repeats: tuple[Dim, ...]

    samples = (sample("f32[2,3]", repeats=(2, 1)), sample("f32[2]", repeats=(3,)))

    def infer(self, *types: Type) -> Type:
        """Extents times repeats."""
        (x,) = (tensor(t, self.name) for t in types)
        if len(self.repeats) != x.rank:
            raise IRError(f"{len(self.repeats)} repeats for {x}")
        return x.with_shape(tuple(d * r for d, r in zip(x.shape, self.repeats, strict=True)))

    def reference(self, *arrays: Array) -> Array:
        """numpy.tile."""
        return np.tile(arrays[0], static(self.repeats, "repeats"))

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The index modulo the operand's extent."""
        (x,) = operands
        parts = zip(index, x.shape, self.repeats, strict=True)
        return x(*(i if r == 1 or d == 0 else i % d for i, d, r in parts))


def reshape(x: Node, shape: Shape) -> Node:
    """`x` under another shape; `x` itself if it has that shape."""
    return x if x.tensor.shape == shape else Node(Reshape(shape), (x,))


def transpose(x: Node, perm: Sequence[int]) -> Node:
    """`x` with its axes in another order; `x` itself if that is the order it has."""
    order = tuple(int(axis) for axis in perm)
    return x if order == tuple(range(len(order))) else Node(Transpose(order), (x,))


def expand(x: Node, shape: Shape) -> Node:
    """`x` broadcast to `shape`; `x` itself if it has that shape."""
    return x if x.tensor.shape == shape else Node(Expand(shape), (x,))


def axis_of(axis: int, rank: int, call: OnnxCall) -> int:
    """A possibly negative axis as 0 <= axis < rank, or a refusal."""
    if not -rank <= axis < rank:
        raise call.refuse(f"with axis {axis} for rank {rank}", "the model is malformed")
    return axis % rank


@onnx("Reshape", since=1)
def import_reshape(call: OnnxCall) -> Node:
    """Reshape: 0 copies an extent (unless allowzero), one -1 takes what is left."""
    x = call.arg(0)
    if "shape" in call.attributes:
        wanted: tuple[Dim, ...] = tuple(int(d) for d in call.attributes["shape"])
    else:
        wanted = call.require_dims(1, "shape")
    zeros = bool(call.attr("allowzero", 0))
    old = x.tensor.shape
    copied: list[Dim] = []
    for axis, extent in enumerate(wanted):
        copies = extent == 0 and not zeros
        if copies and axis >= len(old):
            raise call.refuse(f"whose 0 at axis {axis} copies no extent", "the model is malformed")
        copied.append(old[axis] if copies else extent)
    free = [axis for axis, extent in enumerate(copied) if extent == -1]
    if len(free) > 1:
        raise call.refuse("with more than one -1", "the model is malformed")
    for axis in free:
        count, taken = without_common(old, [d for d in copied if d != -1])
        if taken == 0:
            raise call.refuse("whose -1 is ambiguous (0 elements)", "give the extent as a number")
        copied[axis] = call.simple(count // taken)
    return reshape(x, tuple(copied))


@onnx("Flatten", since=1)
def import_flatten(call: OnnxCall) -> Node:
    """Flatten: two axes, split before `axis`."""
    x = call.arg(0)
    rank = x.tensor.rank
    axis = call.attr("axis", 1)
    if not -rank <= axis <= rank:
        raise call.refuse(f"with axis {axis} for rank {rank}", "the model is malformed")
    axis += rank if axis < 0 else 0
    shape = x.tensor.shape
    return reshape(x, (prod(shape[:axis], start=1), prod(shape[axis:], start=1)))


@onnx("Squeeze", since=1)
def import_squeeze(call: OnnxCall) -> Node:
    """Squeeze: the named axes (or all that are 1) vanish."""
    x = call.arg(0)
    shape = x.tensor.shape
    given = call.axes(1)
    if given is None:
        if any(not isinstance(d, int) for d in shape):
            raise call.refuse(f"without axes over {x.tensor}", "name the axes, or fix the dims")
        axes = {k for k, d in enumerate(shape) if d == 1}
    else:
        axes = {axis_of(a, len(shape), call) for a in given}
    for axis in sorted(axes):
        if isinstance(shape[axis], int) and shape[axis] != 1:
            raise call.refuse(f"of axis {axis} in {x.tensor}", "only extents of 1 can go")
    return reshape(x, tuple(d for k, d in enumerate(shape) if k not in axes))


@onnx("Unsqueeze", since=1)
def import_unsqueeze(call: OnnxCall) -> Node:
    """Unsqueeze: new axes of extent 1 at the named positions of the result."""
    x = call.arg(0)
    given = call.axes(1)
    if given is None:
        raise call.refuse("without axes", "the model is malformed")
    rank = x.tensor.rank + len(given)
    axes = {axis_of(a, rank, call) for a in given}
    if len(axes) != len(given):
        raise call.refuse(f"with repeated axes {given}", "the model is malformed")
    rest = iter(x.tensor.shape)
    return reshape(x, tuple(1 if k in axes else next(rest) for k in range(rank)))


@onnx("Transpose", since=1)
def import_transpose(call: OnnxCall) -> Node:
    """Transpose: reversed axes by default."""
    x = call.arg(0)
    return transpose(x, call.attr("perm", tuple(reversed(range(x.tensor.rank)))))


@onnx("Expand", since=8)
def import_expand(call: OnnxCall) -> Node:
    """Expand: broadcasting in both directions."""
    x = call.arg(0)
    wanted = tuple(call.simple(d) for d in call.require_dims(1, "shape"))
    return expand(x, broadcast([x.tensor.shape, wanted]))


@onnx("Tile", since=6)
def import_tile(call: OnnxCall) -> Node:
    """Tile with repeats as input."""
    x = call.arg(0)
    repeats = call.require_dims(1, "repeats")
    return x if all(r == 1 for r in repeats) else Node(Tile(repeats), (x,))


@onnx("DepthToSpace", since=1)
def import_depth_to_space(call: OnnxCall) -> Node:
    """DepthToSpace: blocks of channels become blocks of pixels (modes DCR and CRD)."""
    x = call.arg(0)
    n, c, h, w = _image(call, x)
    b = call.attr("blocksize", 1)
    depth = c // (b * b)
    if call.attr("mode", "DCR") == "CRD":
        split = transpose(reshape(x, (n, depth, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    else:
        split = transpose(reshape(x, (n, b, b, depth, h, w)), (0, 3, 4, 1, 5, 2))
    return reshape(split, (n, depth, h * b, w * b))


@onnx("SpaceToDepth", since=1)
def import_space_to_depth(call: OnnxCall) -> Node:
    """SpaceToDepth: blocks of pixels become blocks of channels."""
    x = call.arg(0)
    n, c, h, w = _image(call, x)
    b = call.attr("blocksize", 1)
    split = reshape(x, (n, c, h // b, b, w // b, b))
    return reshape(transpose(split, (0, 3, 5, 1, 2, 4)), (n, c * b * b, h // b, w // b))


def _image(call: OnnxCall, x: Node) -> tuple[Dim, Dim, Dim, Dim]:
    if x.tensor.rank != 4:
        raise call.refuse(f"of {x.tensor}", "the operator takes 4 axes")
    n, c, h, w = x.tensor.shape
    return n, c, h, w
