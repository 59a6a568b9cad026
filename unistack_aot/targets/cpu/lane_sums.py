"""Prints a sum of weighted rows, a lane per element of a row, as a call of ua/lanes.h.

Not here: other folds (lanes.py).
"""

from __future__ import annotations

from collections.abc import Collection

from unistack_aot.base.dtypes import f32
from unistack_aot.codegen.ctree import Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.ir.scalar import Call, Name, Scalar, index_symbols, postorder
from unistack_aot.mcir.nodes import Fold, Loop
from unistack_aot.targets.cpu.linear_load import linear_load
from unistack_aot.targets.cpu.tiles import PANEL


def weighted_rows(
    fold: Fold, loop: Loop, laned: Collection[str], writer: KernelWriter
) -> Line | None:
    """The call for a sum of products whose one factor is a row of lanes, the other the same in all lanes.

    `laned` are the names of values that each lane has for itself. None if the fold is of another form. Sums that the
    compiler keeps in an array of lanes pass through memory at every step: 0.63 against 0.54 ms per 100 steps of an
    LSTM of 256 units on two cores.
    """
    value, extent = fold.values[0], loop.extent
    product = isinstance(value, Call) and value.fn == "mul" and value.dtype is f32
    if fold.monoid != "sum" or not product or len(fold.axes) != 1:
        return None
    if not isinstance(extent, int) or extent % PANEL:
        return None
    assert isinstance(value, Call)
    axis = fold.axes[0]
    with writer.scope(axis.var, axis.extent):
        for row, weight in (value.args, reversed(value.args)):
            found = linear_load(row, (loop.var,), writer)
            if found is None or found.steps != (1,) or not _same_in_all(weight, loop.var, laned):
                continue
            var = f"[&](int64_t {identifier(axis.var)})"
            start = f"{var} {{ return {identifier(found.buffer)} + {writer.printer.dim(found.first)}; }}"
            by = f"{var} {{ return {writer.printer.value(weight, {})}; }}"
            sums, count = f"{identifier(fold.states[0])}_lanes", writer.printer.dim(axis.extent)
            return Line(f"ua::lane_sums<{extent}>({sums}, {count}, {start}, {by});")
    return None


def _same_in_all(value: Scalar, lane: str, laned: Collection[str]) -> bool:
    own = any(isinstance(node, Name) and node.name in laned for node in postorder(value))
    return not own and lane not in set(index_symbols(value))
