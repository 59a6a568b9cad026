"""Guards of window operands that the zeros of a layout's halo make needless. Not here: who gets a halo (layouts.py)."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import Dim, Ranges, simplify
from unistack_aot.ir.scalar import Call, Scalar, transform
from unistack_aot.mcir.nodes import Kernel, Stmt
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import map_scalars
from unistack_aot.schedule.clipping import conjuncts, room_of
from unistack_aot.schedule.contraction import Factor, Site, find_site
from unistack_aot.schedule.layouts import halo_of, is_window


def without_covered_guards(launch: Launch, ranges: Ranges) -> Launch:
    """Drop the bounds of a window operand where the layout's halo holds the zeros they would give."""
    kernel = launch.kernel
    site = find_site(kernel)
    if not isinstance(site, Site) or not is_window(site) or site.a.within is None:
        return launch
    param = kernel.param(site.a.load.buffer)
    wanted = halo_of(site, param.shape, ranges)
    held = param.layout.halo or ((0, 0),) * len(param.shape)
    if wanted is None or any(a > c or b > d for (a, b), (c, d) in zip(wanted, held, strict=True)):
        return launch
    if not bounds_alone(site, param.shape, ranges):
        return launch
    return replace(launch, kernel=kernel.with_body(unguarded(kernel, site.a)))


def bounds_alone(site: Site, shape: tuple[Dim, ...], ranges: Ranges) -> bool:
    """Whether the left operand's guard only keeps its index inside the buffer.

    A guard of a cropped operand says more: what it hides is no zero of the halo.
    """
    inside = dict(ranges)
    for axis in (*site.batch, *site.rows, *site.cols, *site.depth):
        inside[axis.var] = (0, axis.extent - 1)
    rooms: set[Dim] = set()
    for entry, extent in zip(site.a.load.index, shape, strict=True):
        assert not isinstance(entry, Scalar)
        rooms |= {simplify(entry, inside), simplify(extent - 1 - entry, inside)}
    assert site.a.within is not None
    found = [room_of(condition) for condition in conjuncts(site.a.within)]
    return all(room is not None and simplify(room, inside) in rooms for room in found)


def unguarded(kernel: Kernel, factor: Factor) -> tuple[Stmt, ...]:
    """The body with `where(within, load, 0)` replaced by the load."""

    def change(value: Scalar) -> Scalar | None:
        if isinstance(value, Call) and value.fn == "where" and value.args[0] is factor.within:
            return value.args[1]
        return None

    return map_scalars(kernel.body, lambda v: transform(v, change))
