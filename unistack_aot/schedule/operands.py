"""Operands of a contraction as matrices: joint numbers of rows and of depth, and which of them is contiguous.

Not here: what a contraction is (contraction.py), what is chosen for it (block_tiles.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.base.symbolic import (
    Dim,
    Range,
    Ranges,
    bounds,
    linear_split,
    simplify,
    substitute,
    symbol,
)
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.nodes import Axis, Kernel, Param
from unistack_aot.schedule.contraction import Factor, Site, product
from unistack_aot.schedule.nests import decoded

FEWEST = 8  # rows or columns below this waste most of any tile; folds do better
OPEN_EXTENT = 512  # what an extent without a bound counts as


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a contraction: `outer` are its own axes (rows or columns); `inner`: depth is contiguous in it."""

    factor: Factor
    param: Param
    outer: tuple[Axis, ...]
    inner: bool


def operand(
    kernel: Kernel, site: Site, factor: Factor, outer: tuple[Axis, ...], ranges: Ranges
) -> Operand:
    """An operand of the site, and whether its depth is contiguous in memory."""
    param = kernel.param(factor.load.buffer)
    index = joint_index(factor, outer, site.depth, "o", "k", site, ranges)
    offset = simplify(param.layout.offset(param.shape, index), site_ranges(site, ranges))
    joint = linear_split(offset, "k")
    inner = joint is not None and joint[0] == 1
    if not inner and site.depth and outer:
        # Depth in parts: contiguous inside its last axis is enough, if that is long and rows are not contiguous.
        plain = tuple(e for e in factor.load.index if not isinstance(e, Scalar))
        offset = simplify(param.layout.offset(param.shape, plain), site_ranges(site, ranges))
        deep, wide = site.depth[-1], outer[-1]
        strides = [linear_split(offset, axis.var) for axis in (deep, wide)]
        steps = [None if s is None else s[0] for s in strides]
        inner = steps[0] == 1 and steps[1] != 1 and size_of(deep.extent, ranges) >= FEWEST
    return Operand(factor, param, outer, inner)


def joint_index(
    factor: Factor,
    outer: tuple[Axis, ...],
    depth: tuple[Axis, ...],
    row: str,
    deep: str,
    site: Site,
    ranges: Ranges,
) -> tuple[Dim, ...]:
    """The operand's index over a joint row (or column) number and a joint depth number."""
    env = decoded(outer, symbol(row)) | decoded(depth, symbol(deep))
    inside = site_ranges(site, ranges) | {row: _span(outer), deep: _span(depth)}
    entries: list[Dim] = []
    for entry in factor.load.index:
        assert not isinstance(entry, Scalar)
        entries.append(simplify(substitute(entry, env), inside))
    return tuple(entries)


def site_ranges(site: Site, ranges: Ranges) -> dict[str, Range]:
    """The ranges with those of every loop and summed variable of a site."""
    inside = dict(ranges)
    for axis in (*site.batch, *site.rows, *site.cols, *site.depth):
        top = axis.extent - 1 if isinstance(axis.extent, int) else None
        inside[axis.var] = (0, top)
    return inside


def _span(axes: tuple[Axis, ...]) -> tuple[int, int | None]:
    total = product(axes)
    return (0, total - 1 if isinstance(total, int) else None)


def size_of(extent: Dim, ranges: Ranges) -> int:
    """A number that stands for an extent: its upper bound, or a usual size."""
    if isinstance(extent, int):
        return extent
    high = bounds(extent, ranges)[1]
    return OPEN_EXTENT if high is None else min(high, 1 << 16)
