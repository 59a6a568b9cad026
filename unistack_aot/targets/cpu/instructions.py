"""The tile instructions of processors over panels, as data, and which of them computes a product.

Not here: their registers and loops (include/ua/tile.h, tile_bf16.h, tile_i16.h), blocks around them (panel_blocks.py).
"""

from __future__ import annotations

from unistack_aot.base.dtypes import DType, bf16, i8, i16, i32, u8
from unistack_aot.hw.machine import Machine
from unistack_aot.schedule.panels import FMA, PanelInstruction

DOT = PanelInstruction("dot.panel16", bf16, unit=32, pairs=2, needs="arith.bf16_dot")
"""Dot products of pairs, two to a lane (AVX512-BF16)."""

AMX = PanelInstruction("amx.panel16", bf16, unit=32, pairs=2, rows=32, needs="matrix.bf16")
"""Tile registers of 16 x 32 elements (AMX); four of them hold the sums of 32 rows of two panels."""

INTEGER = PanelInstruction("madd.panel16", i16, sums=i32, takes=(i8, u8, i16), unit=32, pairs=2)
"""Multiply-adds of pairs of i16: with the addition of their sums, as many products per cycle as in f32."""

INSTRUCTIONS = {each.name: each for each in (FMA, DOT, AMX, INTEGER)}


def instruction_for(
    sums: DType, operands: tuple[DType | None, DType | None], precision: str, machine: Machine
) -> tuple[PanelInstruction, str]:
    """The fastest instruction that keeps the operands' values, or rounds them as asked for, and why.

    `operands`: the narrow types to which the values of f32 operands are rounded already (None: to none).
    """
    if sums is i32:
        return INTEGER, ""
    exact = operands == (bf16, bf16)
    narrow = exact or precision == "bf16"
    able = [FMA]
    if narrow:
        able += [each for each in (DOT, AMX) if each.needs and machine.can(each.needs)]
    rates = {each: machine.rate(each.name, each.dtype.name) for each in able}
    best = max(able, key=lambda each: rates[each].value)
    if not narrow:
        return best, ""
    shown = ", ".join(f"{rate.name} {rate.value:.3g} FLOP/s" for rate in rates.values())
    return best, f"{'operands are bf16' if exact else 'bf16 is asked for'}; {shown}"
