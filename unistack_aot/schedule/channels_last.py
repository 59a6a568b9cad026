"""Operands whose neighbours no asynchronous copy can move, turned once so that runs of channels lie side by side.

A window over a channels-first image of 16-bit elements shifts by two bytes; copies past registers move four at least.
Not here: how tiles are filled (targets), constant operands (tile_constants.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

from unistack_aot.base.dtypes import DType, f16
from unistack_aot.base.symbolic import Dim, Ranges, divisible, linear_split, simplify, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import Load, Scalar, cast
from unistack_aot.mcir.nodes import Access, Axis, Kernel, Loop, Param, Store
from unistack_aot.mcir.transform import all_loads, replace_loads
from unistack_aot.schedule.block_tiles import outputs_of
from unistack_aot.schedule.contraction import Factor, Site, find_site, product
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.operands import joint_index, operand, site_ranges, size_of
from unistack_aot.schedule.operator import Kernels, Operator
from unistack_aot.schedule.stored_runs import WIDEST
from unistack_aot.schedule.tile_instruction import SHOWN, TileInstruction

LEAST_COPY = 4  # bytes that an asynchronous copy moves at least


@dataclass(frozen=True, slots=True)
class Channels:
    """An operand and the place of its channels: a depth axis along which memory does not run."""

    factor: Factor
    param: Param
    outer: tuple[Axis, ...]
    place: int

    @property
    def order(self) -> tuple[int, ...]:
        """The operand's axes with the channels last."""
        rank = len(self.param.shape)
        return (*(k for k in range(rank) if k != self.place), self.place)


def find_channels(
    kernel: Kernel, site: Site, tile: TileInstruction, ranges: Ranges
) -> Channels | No:
    """The operand that is gathered element by element and could be copied in runs of channels."""
    if tile.element.bytes >= LEAST_COPY:
        return No("single elements are copied asynchronously")
    for factor, outer in ((site.a, site.rows), (site.b, site.cols)):
        param = kernel.param(factor.load.buffer)
        if not param.layout.plain or not _is_gathered(kernel, site, factor, outer, ranges):
            continue
        for axis in site.depth:
            places = [k for k, e in enumerate(factor.load.index) if e is symbol(axis.var)]
            uses = [
                e
                for e in factor.load.index
                if not isinstance(e, int | Scalar) and axis.var in e.symbols
            ]
            runs = divisible(axis.extent, WIDEST // tile.element.bytes)
            if len(places) == len(uses) == 1 and runs and param.shape[places[0]] == axis.extent:
                return Channels(factor, param, outer, places[0])
    return No("no gathered operand has channels apart")


def _is_gathered(
    kernel: Kernel, site: Site, factor: Factor, outer: tuple[Axis, ...], ranges: Ranges
) -> bool:
    """Whether an operand is neither a strided matrix nor runs along the depth."""
    side = operand(kernel, site, factor, outer, ranges)
    if side.inner:
        return False
    index = joint_index(factor, outer, site.depth, "o", "k", site, ranges)
    offset = simplify(side.param.layout.offset(side.param.shape, index), site_ranges(site, ranges))
    along = linear_split(offset, "o")
    return factor.within is not None or along is None or linear_split(along[1], "k") is None


def choose_channels_last(
    kernel: Kernel, site: Site, tile: TileInstruction, machine: Machine, ranges: Ranges
) -> tuple[Channels, Decision] | No:
    """The operand to turn, if that costs less than fills that wait for memory in every step of the depth."""
    if not machine.can("async_copy", "far", "near"):
        return No("no asynchronous copies")
    found = find_channels(kernel, site, tile, ranges)
    if isinstance(found, No):
        return found
    steps = ceil(size_of(product(site.depth), ranges) / tile.depth)
    tiles = prod(
        ceil(size_of(product(axes), ranges) / size)
        for axes, size in ((site.rows, tile.rows), (site.cols, tile.cols))
    ) * size_of(product(site.batch), ranges)
    rounds = ceil(
        tiles / (machine.parallel_units * max(1, machine.resident_threads // tile.workers))
    )
    waiting = rounds * steps * machine.latency("l2").value
    elements = prod(size_of(extent, ranges) for extent in found.param.shape)
    moved = elements * (found.param.dtype.bytes + tile.element.bytes)
    turning = (
        machine.launch_cost().value
        + 2 * machine.latency("far").value
        + moved / machine.bandwidth("far").value
    )
    what = f"{steps} steps would wait {waiting * 1e6:.2f} us for l2, turning takes {turning * 1e6:.2f} us"
    if turning >= waiting:
        return No(what)
    subject = ", ".join(outputs_of(kernel))
    tried = ("channels first, through registers",)
    return found, Decision("channels", subject, f"{found.param.name} channels last", what, tried)


def can_turn(kernel: Kernel, found: Channels | No, element: DType, name: str) -> Yes | No:
    """Whether there is such an operand, and `name` is free."""
    if isinstance(found, No):
        return found
    return No(f"{name} is taken") if any(p.name == name for p in kernel.params) else YES


def turned(
    kernel: Kernel, found: Channels | No, element: DType, name: str
) -> tuple[Kernel, Kernel]:
    """An operand written once more with its channels last, and the contraction that reads it there.

    before:
        kernel conv(x: f16[2, 8, 5, 5] far, k: f16[4, 8, 3, 3] far) -> y: f32[2, 4, 3, 3] far {
          for n in 2, o in 4, h in 3, w in 3 {
            s = fold sum over c in 8, i in 3, j in 3 of f32(x[n, c, h + i, w + j]) * f32(k[o, c, i, j])
            y[n, o, h, w] = s
          }
        }
    after:
        kernel k0(x: f16[2, 8, 5, 5] far) -> t: f16[2, 5, 5, 8] far {
          for at0 in 2, at2 in 5, at3 in 5, at1 in 8 {
            t[at0, at2, at3, at1] = x[at0, at1, at2, at3]
          }
        }

        kernel k1(t: f16[2, 5, 5, 8] far, k: f16[4, 8, 3, 3] far) -> y: f32[2, 4, 3, 3] far {
          for n in 2, o in 4, h in 3, w in 3 {
            s = fold sum over c in 8, i in 3, j in 3 of f32(t[n, h + i, j + w, c]) * f32(k[o, c, i, j])
            y[n, o, h, w] = s
          }
        }
    """
    assert isinstance(found, Channels)
    load = found.factor.load
    index = tuple(load.index[k] for k in found.order)
    fresh = cast(load.dtype, Load(name, index, element))
    body = replace_loads(kernel.body, lambda each: fresh if each is load else None)
    read = {each.buffer for each in all_loads(body)}
    params = tuple(p for p in kernel.params if p.access is not Access.IN or p.name in read)
    held = Param(name, element, turned_shape(found))
    reader = replace(kernel, params=(held, *params), body=body)
    return _copy(found, element, name), reader


def _copy(found: Channels, element: DType, name: str) -> Kernel:
    """The kernel that writes the operand as `name` with channels last."""
    param = found.param
    at = tuple(symbol(f"at{k}") for k in range(len(param.shape)))
    value = cast(element, Load(param.name, at, param.dtype))
    body: tuple[Loop | Store, ...] = (Store(name, tuple(at[k] for k in found.order), value),)
    for k in reversed(found.order):
        body = (Loop(f"at{k}", param.shape[k], body),)
    target = Param(name, element, turned_shape(found), Access.OUT)
    return Kernel((replace(param, access=Access.IN), target), body)


def turned_shape(found: Channels) -> tuple[Dim, ...]:
    """The extents of the operand with channels last."""
    return tuple(found.param.shape[k] for k in found.order)


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    site = find_site(kernel)
    assert isinstance(site, Site)
    found = find_channels(kernel, site, replace(SHOWN, element=f16), {})
    return TURN_CHANNELS(kernel, found, f16, "t")


TURN_CHANNELS = Operator("channels-last", can_turn, turned, _example)
