"""The tile instructions of processors over panels, as data, and which of them computes a product.

Not here: their registers and loops (include/ua/tile.h, include/ua/tile_bf16.h), blocks around them (panel_blocks.py).
"""

from __future__ import annotations

from unistack_aot.base.dtypes import DType, bf16
from unistack_aot.hw.machine import Machine
from unistack_aot.schedule.panels import FMA, PanelInstruction

DOT = PanelInstruction("dot.panel16", bf16, unit=32, pairs=2, needs="arith.bf16_dot")
"""Dot products of pairs, two to a lane (AVX512-BF16)."""

AMX = PanelInstruction("amx.panel16", bf16, unit=32, pairs=2, rows=32, needs="matrix.bf16")
"""Tile registers of 16 x 32 elements (AMX); four of them hold the sums of 32 rows of two panels."""

INSTRUCTIONS = (FMA, DOT, AMX)


def instruction_for(
    operands: tuple[DType | None, DType | None], precision: str, machine: Machine
) -> tuple[PanelInstruction, str]:
    """The fastest instruction that keeps the operands' values, or rounds them as asked for, and why.

    `operands`: the narrow types to which the values of f32 operands are rounded already (None: to none).
    """
    exact = operands == (bf16, bf16)
    narrow = exact or precision == "bf16"
    able = [
        each for each in INSTRUCTIONS if each.needs is None or (narrow and machine.can(each.needs))
    ]
    rates = {each: machine.rate(each.name, each.dtype.name) for each in able}
    best = max(able, key=lambda each: rates[each].value)
    if not narrow:
        return best, ""
    shown = ", ".join(f"{rate.name} {rate.value:.3g} FLOP/s" for rate in rates.values())
    return best, f"{'operands are bf16' if exact else 'bf16 is asked for'}; {shown}"
