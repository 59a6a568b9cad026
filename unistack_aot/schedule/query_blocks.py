"""Into which blocks of queries and keys a core with caches cuts an attention: the usual sizes, and all others.

Keys and values are packed anew for every block of queries, so large blocks cost less, as long as no core waits
for another. Not here: recognising attention (attention.py), blocks of machines with managed near memory
(attention_blocks.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, prod

from unistack_aot.base.symbolic import Dim, Ranges, bounds
from unistack_aot.hw.machine import Machine
from unistack_aot.schedule.attention import AttentionSite
from unistack_aot.schedule.panel_blocks import usual_size
from unistack_aot.schedule.panels import PANEL, register_tile

# Rows of a block, at most kQueryBlock of ua/attention.h; above 14 in whole register tiles of 14 and of 6 rows.
QUERY_ROWS = (8, 14, 28, 42, 84, 126, 168, 252, 336, 504)
KEY_TILES = (512, 256, 128)
# Rows whose work takes as long as packing keys and values for them: measured for heads of 64.
PACKING = 5


def query_blocks(site: AttentionSite, machine: Machine, ranges: Ranges) -> list[tuple[int, int]]:
    """Queries and keys at a time, the usual ones first."""
    heads = prod(_usual(axis.extent, ranges) for axis in site.outer)
    all_rows, units = _usual(site.rows.extent, ranges), machine.parallel_units
    fair = ceil(all_rows / ceil(units / heads))  # a block for every core
    sizes = sorted({*QUERY_ROWS, min(fair, QUERY_ROWS[-1])})
    rows = list(dict.fromkeys(even(site.rows.extent, size, 1) for size in sizes))
    keys = list(dict.fromkeys(even(site.keys.extent, size, PANEL) for size in KEY_TILES))

    def cost(size: int) -> tuple[int, int]:
        tasks = heads * ceil(all_rows / size)
        return ceil(tasks / units) * (min(size, all_rows) + PACKING), -size

    usual = (min(rows, key=cost), _held(keys, machine))
    found = [(r, k) for r in rows for k in keys]
    return [usual, *(sizes for sizes in found if sizes != usual)]


def even(extent: Dim, most: int, unit: int) -> int:
    """The size of equal parts of at most `most`, in whole units; `most` itself where the extent is open."""
    if not isinstance(extent, int):
        return most
    part = ceil(extent / ceil(extent / most)) if extent else 1
    return ceil(part / unit) * unit


def _held(keys: Iterable[int], machine: Machine) -> int:
    """The most keys whose scores stay in the first cache for the rows of a register tile."""
    rows, room = register_tile(machine).rows, machine.capacity("l1").value
    return max((k for k in keys if rows * k * 4 <= room), default=min(keys))


def _usual(extent: Dim, ranges: Ranges) -> int:
    return usual_size(bounds(extent, ranges)[1])
