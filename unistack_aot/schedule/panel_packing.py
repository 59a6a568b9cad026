"""Schedule operator: the right operand of a contraction packed into panels of 16 columns.

Not here: the order of the depth inside panels (panels.py), the contraction over them in tiles (panel_tiles.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unistack_aot.base.dtypes import f32
from unistack_aot.base.symbolic import Dim, Ranges, ceildiv, substitute, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import (
    Load,
    Scalar,
    call,
    cast,
    index_value,
    literal,
    substitute_indices,
    where,
)
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.nodes import Access, Axis, Fold, Kernel, Loop, Param, Stmt, Store
from unistack_aot.mcir.transform import all_loads, around, perfect_nest
from unistack_aot.schedule.contraction import Factor, Site, find_site, joint, product
from unistack_aot.schedule.merging import outputs_last
from unistack_aot.schedule.nests import decoded
from unistack_aot.schedule.operator import Kernels, Operator
from unistack_aot.schedule.panels import (
    FMA,
    PANEL,
    Depth,
    PanelInstruction,
    blocked_axis,
    depth_of,
    split_depth,
)

FEWEST = 4  # columns below which most of a panel would be padding
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Packed:
    """The kernel that packs, and the contraction over what it packed."""

    packing: Kernel
    kernel: Kernel
    site: Site


def packed_shape(site: Site, depth: Depth, via: PanelInstruction) -> tuple[Dim, ...]:
    """[batch..., panels, depth, 16]."""
    batch = tuple(axis.extent for axis in _packed_batch(site))
    return (*batch, ceildiv(product(site.cols), PANEL), via.depth(product(depth.axes)), PANEL)


def _packed_batch(site: Site) -> tuple[Axis, ...]:
    return tuple(axis for axis in site.batch if axis.var in site.b.names)


def pack_constant(
    site: Site, depth: Depth, layout: Layout, array: Array, via: PanelInstruction = FMA
) -> Array | None:
    """The packed panels of a constant, or of a slice of one, that the loops run through; None if they do not.

    In memory order: [batch..., panels, depth, 16], or [batch..., panels, depth // pairs, 16, pairs].
    """
    wanted = (*_packed_batch(site), *site.cols, *site.depth)
    found = [_part_of_axis(entry, wanted) for entry in site.b.load.index]
    if site.b.within is not None or any(each is None for each in found):
        return None
    parts = [each for each in found if each is not None]
    names, order = [name for name, _ in parts if name], [axis.var for axis in wanted]
    if sorted(names) != sorted(order):
        return None
    array = array[tuple(part for _, part in parts)]
    moved = array.transpose([names.index(name) for name in order]).astype(np.float32)
    batch, cols = len(_packed_batch(site)), len(site.cols)
    moved = moved.reshape(*moved.shape[:batch], -1, *moved.shape[batch + cols :])
    moved = _ordered_depth(moved, batch + 1, site, depth, layout)
    flat = moved.reshape(*moved.shape[: batch + 1], -1)
    pads = (-flat.shape[batch] % PANEL, -flat.shape[-1] % via.unit)
    flat = np.pad(flat, [(0, 0)] * batch + [(0, pad) for pad in pads])
    with np.errstate(over="ignore"):
        flat = flat.astype(via.dtype.numpy)
    panels = flat.reshape(*flat.shape[:batch], -1, PANEL, flat.shape[-1] // via.pairs, via.pairs)
    packed = np.ascontiguousarray(np.swapaxes(panels, -2, -3))
    return packed.reshape(packed.shape[:-1]) if via.pairs == 1 else packed


def _part_of_axis(entry: Dim | Scalar, axes: tuple[Axis, ...]) -> tuple[str, slice | int] | None:
    """The loop that runs through an axis ("": none) and where; None if it does so otherwise than step by step."""
    if isinstance(entry, int):
        return "", entry
    if isinstance(entry, Scalar):
        return None
    for axis in axes:
        first = entry - symbol(axis.var)
        if isinstance(first, int) and isinstance(axis.extent, int):
            return axis.var, slice(first, first + axis.extent)
    return None


def _ordered_depth(array: Array, first: int, site: Site, depth: Depth, layout: Layout) -> Array:
    """Split the blocked depth axis (zero-padded) and put the depth axes in the order of `depth`."""
    blocked = blocked_axis(site, layout)
    names: list[str] = []
    place = first
    for axis in site.depth:
        if axis == blocked and layout.block is not None:
            size = layout.block[1]
            pad = -array.shape[place] % size
            array = np.pad(array, [(0, pad if k == place else 0) for k in range(array.ndim)])
            shape = (*array.shape[:place], -1, size, *array.shape[place + 1 :])
            array = array.reshape(shape)
            names += [f"{axis.var}_o", f"{axis.var}_i"]
            place += 2
        else:
            names.append(axis.var)
            place += 1
    order = [names.index(axis.var) + first for axis in depth.axes]
    return array.transpose([*range(first), *order])


def can_pack(
    kernel: Kernel, site: Site | No, name: str, ranges: Ranges, via: PanelInstruction = FMA
) -> Yes | No:
    """Whether the contraction is one of f32, and its left operand is read in runs of a constant length."""
    if isinstance(site, No):
        return site
    a = kernel.param(site.a.load.buffer)
    b = kernel.param(site.b.load.buffer)
    taken = a.dtype in via.takes and (via.sums.is_float or b.dtype in via.takes)
    if not taken or site.acc.dtype is not via.sums or not site.cols:
        return No(f"{via.name} takes {' or '.join(map(str, via.takes))}")
    if site.a.within is not None:
        return No("the left operand has guarded elements")
    depth = depth_of(site, a.layout, a.shape, ranges)
    if isinstance(depth, No):
        return depth
    if depth.run == 0:
        return No("the contiguous run has no constant length")
    if isinstance(size := product(site.cols), int) and size < FEWEST:
        return No("too few columns for a panel")
    return No(f"{name} is taken") if any(p.name == name for p in kernel.params) else YES


def packed_right(
    kernel: Kernel, site: Site | No, name: str, ranges: Ranges, via: PanelInstruction = FMA
) -> Packed:
    """A kernel that packs the right operand of a contraction into panels, and the contraction over those.

    before:
        kernel product(a: f32[N, 6] far, b: f32[6, 20] far, c: f32[20] far) -> y: f32[N, 20] far {
              for i in N, j in 20 {
                s = fold sum over k in 6 of a[i, k] * b[k, j]
                y[i, j] = max(s + c[j], 0.0)
              }
            }
    after:
        kernel k0(b: f32[6, 20] far) -> packed: f32[2, 6, 16] far {
          for panel in 2, k in 6, lane in 16 {
            packed[panel, k, lane] = where([lane + 16*panel] < 20, b[k, lane + 16*panel], 0.0)
          }
        }

        kernel k1(a: f32[N, 6] far, c: f32[20] far, packed: f32[2, 6, 16] far) -> y: f32[N, 20] far {
          for i in N, j in 20 {
            s = fold sum over k in 6 of a[i, k] * packed[j//16, k, j%16]
            y[i, j] = max(s + c[j], 0.0)
          }
        }
    """
    assert isinstance(site, Site)
    a, b = kernel.param(site.a.load.buffer), kernel.param(site.b.load.buffer)
    depth = depth_of(site, a.layout, a.shape, ranges)
    assert isinstance(depth, Depth)
    shape = packed_shape(site, depth, via)
    held = Param(name, via.dtype, shape, Access.OUT, via.layout(len(shape)))
    packing = Kernel((b, held), _packing(site, depth, a.layout, held, via))
    over = _over_panels(site, depth, a.layout, held)
    loops, (fold, *tail) = perfect_nest(kernel.body[:1])
    assert isinstance(fold, Fold)
    value = call("mul", _as_taken(over.a.load, via), cast(via.sums, over.b.load))
    summed = replace(fold, axes=depth.axes, values=(value,))
    params = tuple(p for p in kernel.params if p.name != b.name or _still_read(b.name, site))
    body = (*around(loops, (summed, *tail)), *kernel.body[1:])
    read = replace(held, access=Access.IN)
    return Packed(packing, replace(kernel, params=outputs_last((*params, read)), body=body), over)


def _as_taken(value: Scalar, via: PanelInstruction) -> Scalar:
    """An element as the instruction multiplies it: rounded to its type."""
    return cast(via.sums, value if via.rounds is None else cast(via.rounds, value))


def _over_panels(site: Site, depth: Depth, layout: Layout, held: Param) -> Site:
    """The contraction with its right operand in panels, and the depth in their order."""
    apart = split_depth(site, layout)
    index = tuple(e if isinstance(e, Scalar) else substitute(e, apart) for e in site.a.load.index)
    batch = tuple(symbol(axis.var) for axis in _packed_batch(site))
    column = joint(site.cols)
    panel = (*batch, column // PANEL, joint(depth.axes), column % PANEL)
    a = Factor(Load(site.a.load.buffer, index, site.a.load.dtype), None)
    return replace(site, a=a, b=Factor(Load(held.name, panel, held.dtype), None), depth=depth.axes)


def _packing(
    site: Site, depth: Depth, layout: Layout, held: Param, via: PanelInstruction
) -> tuple[Stmt, ...]:
    """The map that stores every element of the panels, zero in the columns, channels and depth that only pad."""
    batch = _packed_batch(site)
    panel, lane = symbol("panel"), symbol("lane")
    column = panel * PANEL + lane
    env: dict[str, Dim] = {**split_depth(site, layout), **decoded(site.cols, column)}
    place, deep = joint(depth.axes), depth.axes
    guards = [index_value(column) < index_value(product(site.cols))]
    if via.unit > 1:
        place, deep = symbol("deep"), (Axis("deep", held.shape[-2]),)
        apart = decoded(depth.axes, place)
        env = {**apart, **{name: substitute(entry, apart) for name, entry in env.items()}}
        guards.append(index_value(place) < index_value(product(depth.axes)))
    value = substitute_indices(site.b.load, env)
    blocked = blocked_axis(site, layout)
    if blocked is not None:
        guards.append(index_value(env[blocked.var]) < index_value(blocked.extent))
    if site.b.within is not None:
        guards.append(substitute_indices(site.b.within, env))
    wide = f32 if held.dtype.is_float else held.dtype
    value = cast(wide, value)
    for guard in reversed(guards):
        value = where(guard, value, literal(0, wide))
    index = (*(symbol(a.var) for a in batch), panel, place, lane)
    loops = (*batch, Axis("panel", held.shape[-3]), *deep, Axis("lane", PANEL))
    body: tuple[Stmt, ...] = (Store(held.name, index, cast(held.dtype, value)),)
    for axis in reversed(loops):
        body = (Loop(axis.var, axis.extent, body),)
    return body


def _still_read(buffer: str, site: Site) -> bool:
    """Whether the right operand's buffer is also read elsewhere (as the left operand, or by the tail)."""
    if site.a.load.buffer == buffer:
        return True
    return any(load.buffer == buffer for load in all_loads(site.tail))


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    found = PACK(kernel, find_site(kernel), "packed", {})
    return found if isinstance(found, No) else (found.packing, found.kernel)


PACK = Operator("pack", can_pack, packed_right, _example)
