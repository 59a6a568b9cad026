"""Every tile instruction that the scheduler may choose exists in the headers, with the threads and bytes it assumes."""

from __future__ import annotations

from itertools import product

from tests.build.emulator_worker import image
from unistack_aot.schedule.attention_blocks import AttentionShape
from unistack_aot.schedule.block_tiles import stage_bytes
from unistack_aot.targets.cuda.instructions import ATTENTION, INSTRUCTIONS
from unistack_aot.targets.cuda.tiles import block_type


def test_instructions_fit_the_headers() -> None:
    lines = ["#include <ua/kernel.cuh>"]
    for tile in INSTRUCTIONS.values():
        for a_inner, b_inner in product((True, False), repeat=2):
            if not tile.takes(a_inner, b_inner):
                continue
            kind = block_type(tile, a_inner, b_inner)
            held = f"({kind}::ATile::bytes + {kind}::BTile::bytes)"
            lines.append(f'static_assert({kind}::threads == {tile.workers}, "{tile.name}");')
            wanted = stage_bytes(tile, a_inner, b_inner)
            lines.append(f'static_assert({held} == {wanted}, "{tile.name}");')
    assert len(lines) > 100
    assert image("\n".join(lines) + "\n").exists()


def test_attention_blocks_fit_the_headers() -> None:
    lines = ["#include <ua/kernel.cuh>"]
    for block in ATTENTION.values():
        family = "FmaAttention<" if block.kind == "fma" else f"MmaAttention<ua::{block.kind}, "
        kind = f"ua::{family}{block.queries}, {block.keys}, 64, 64, {block.split}>"
        held = (
            f"{kind}::QTile::bytes + 2 * ({kind}::KTile::bytes + {kind}::VTile::bytes)"
            f" + {kind}::scratch_bytes"
        )
        lines.append(f'static_assert({kind}::threads == {block.workers}, "{block.name}");')
        wanted = block.near_bytes(AttentionShape(64, 64), 2)
        lines.append(f'static_assert({held} == {wanted}, "{block.name}");')
    assert image("\n".join(lines) + "\n").exists()
