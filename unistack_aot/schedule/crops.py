"""Padded convolutions of a part of a buffer: the part is stored, so that zeros of its halo can stand for the guards.

Elements around a crop are no zeros. Not here: who gets a halo (layouts.py).
"""

from __future__ import annotations

from unistack_aot.base.dtypes import f32
from unistack_aot.base.symbolic import Dim, Ranges, bounds, simplify, symbol, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import Load, Scalar
from unistack_aot.mcir.nodes import Access, Kernel, Loop, Param, Stmt, Store
from unistack_aot.mcir.transform import all_loads, replace_loads
from unistack_aot.schedule.clipping import conjuncts, room_of
from unistack_aot.schedule.contraction import Site, find_site
from unistack_aot.schedule.operator import Kernels, Operator

Region = tuple[tuple[Dim, Dim], ...]  # first element and one past the last, by axis


def can_store_crop(kernel: Kernel, ranges: Ranges, name: str) -> Yes | No:
    """Whether the guard of the left operand tells a part of it that is smaller than its buffer."""
    if any(param.name == name for param in kernel.params):
        return No(f"{name} is taken")
    found = region(kernel, ranges)
    return found if isinstance(found, No) else YES


def crop_stored(kernel: Kernel, ranges: Ranges, name: str) -> tuple[Kernel, Kernel]:
    """The kernel that stores the part of an operand inside a contraction's guard, and the contraction that reads it.

    before:
        kernel convolve(x: f32[N, 4, 8] far, w: f32[16, 4, 3] far) -> y: f32[N, 16, 6] far {
          for n in N, o in 16, i in 6 {
            s = fold sum over c in 4, k in 3 of where(0 <= [i + k - 1], x[n, c, i + k], 0.0) * w[o, c, k]
            y[n, o, i] = s
          }
        }
    after:
        kernel k0(x: f32[N, 4, 8] far) -> crop: f32[N, 4, 7] far {
          for c0 in N, c1 in 4, c2 in 7 {
            crop[c0, c1, c2] = x[c0, c1, c2 + 1]
          }
        }

        kernel k1(crop: f32[N, 4, 7] far, w: f32[16, 4, 3] far) -> y: f32[N, 16, 6] far {
          for n in N, o in 16, i in 6 {
            s = fold sum over c in 4, k in 3 of where(0 <= [i + k - 1], crop[n, c, i + k - 1], 0.0) * w[o, c, k]
            y[n, o, i] = s
          }
        }
    """
    found = region(kernel, ranges)
    site = find_site(kernel)
    assert isinstance(site, Site) and not isinstance(found, No)
    load = site.a.load
    source = kernel.param(load.buffer)
    index = tuple(e - low for e, (low, _) in zip(_dims(load), found, strict=True))
    crop = Param(name, source.dtype, tuple(high - low for low, high in found), Access.OUT)
    places = tuple(symbol(f"c{axis}") for axis in range(len(found)))
    taken = tuple(place + low for place, (low, _) in zip(places, found, strict=True))
    copy: tuple[Stmt, ...] = (Store(name, places, Load(source.name, taken, source.dtype)),)
    for place, extent in zip(reversed(places), reversed(crop.shape), strict=True):
        copy = (Loop(str(place), extent, copy),)
    body = replace_loads(
        kernel.body, lambda read: Load(name, index, read.dtype) if read is load else None
    )
    names = {read.buffer for read in all_loads(body)}
    kept = (p for p in kernel.params if p.access is not Access.IN or p.name in names)
    read = Param(name, crop.dtype, crop.shape)
    return Kernel((source, crop), copy), Kernel((read, *kept), body)


def region(kernel: Kernel, ranges: Ranges) -> Region | No:
    """The part of the left operand inside its guard, where that is smaller than the buffer."""
    site = find_site(kernel)
    if not isinstance(site, Site):
        return site
    source = kernel.param(site.a.load.buffer)
    if site.a.within is None:
        return No("nothing of the left operand is hidden")
    if source.dtype is not f32 or not source.layout.plain:
        return No("the left operand is not plain f32")
    axes = (*site.batch, *site.rows, *site.cols, *site.depth)
    inside = {**ranges, **{axis.var: (0, axis.extent - 1) for axis in axes}}
    loops = {axis.var for axis in axes}
    entries = tuple(simplify(entry, inside) for entry in _dims(site.a.load))
    found: list[tuple[Dim, Dim]] = [(0, extent) for extent in source.shape]
    for condition in conjuncts(site.a.within):
        room = room_of(condition)
        if room is None or not _limit(simplify(room, inside), entries, loops, found):
            return No("its guard is no region of the operand")
    if tuple(found) == tuple((0, extent) for extent in source.shape):
        return No("its guard only keeps the index inside the buffer")
    for (low, high), extent in zip(found, source.shape, strict=True):
        if any(_least(gap, ranges) < 0 for gap in (low, high - low, extent - high)):
            return No("the region is not proven to lie inside the operand")
    return tuple(found)


def _limit(
    room: Dim, entries: tuple[Dim, ...], loops: set[str], found: list[tuple[Dim, Dim]]
) -> bool:
    """Narrow the axis that a condition (`room` >= 0) limits; False where it limits none."""
    for axis, entry in enumerate(entries):
        low, high = found[axis]
        first, end = entry - room, entry + room + 1
        if not symbols(first) & loops:
            found[axis] = (first, high)
            return True
        if not symbols(end) & loops:
            found[axis] = (low, end)
            return True
    return False


def _least(value: Dim, ranges: Ranges) -> int:
    low = bounds(value, ranges)[0]
    return -1 if low is None else low


def _dims(load: Load) -> tuple[Dim, ...]:
    entries = tuple(entry for entry in load.index if not isinstance(entry, Scalar))
    assert len(entries) == len(load.index)
    return entries


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    return CROP(kernel, {}, "crop")


CROP = Operator("store-crop", can_store_crop, crop_stored, _example)
