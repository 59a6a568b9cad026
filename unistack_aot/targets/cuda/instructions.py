"""The tile instructions of GPUs as data: block and thread tile sizes of FmaTile and MmaTile, and what each needs."""

from __future__ import annotations

from unistack_aot.base.dtypes import DType, bf16, f16, f32, f64, i32
from unistack_aot.hw.machine import Machine
from unistack_aot.schedule.attention_blocks import AttentionBlock
from unistack_aot.schedule.tile_instruction import TileInstruction

# Block rows, columns, depth; rows and columns per thread; share of the FMA peak. The share falls with the words
# loaded from near memory per product, 1 / rows + 1 / cols of the thread's tile; assumed until probed.
_FMA = (
    (128, 128, 16, 8, 8, 0.85),
    (128, 64, 16, 8, 4, 0.75),
    (64, 128, 16, 8, 8, 0.80),
    (64, 64, 16, 4, 4, 0.60),
    (64, 64, 16, 8, 4, 0.70),
    (32, 64, 16, 4, 4, 0.60),
    (64, 32, 16, 4, 4, 0.60),
    (32, 32, 16, 4, 4, 0.55),
    (16, 64, 16, 4, 4, 0.55),
    (16, 32, 32, 2, 4, 0.40),
    (8, 128, 16, 2, 8, 0.50),
)

# Block rows, columns, depth; warps along rows and columns; share of the peak, assumed until probed. The largest tile's
# is derived: 0.85 to 0.95 of the vendor library, as hand-written mma.sync kernels on sm_75 to sm_120 reach (the maps'
# mma.reached says of what), less a pipeline that is not persistent; others fall with the words loaded per product.
_MMA = (
    (128, 128, 32, 2, 4, 0.75),
    (128, 64, 32, 2, 2, 0.65),
    (64, 128, 32, 2, 2, 0.65),
    (64, 64, 32, 2, 2, 0.50),
    (32, 64, 32, 1, 4, 0.35),
    (64, 32, 32, 2, 2, 0.35),
    (32, 32, 32, 2, 1, 0.30),
    (16, 64, 32, 1, 4, 0.25),
)

# Columns of a result that a lane of a matrix instruction has, and gets by two exchanges in its quad.
MMA_RUNS = (2, 8)


def _fma(dtype: DType) -> tuple[TileInstruction, ...]:
    # Maps state no rates of i32 and f64 multiply-adds; those of f32 rank the tiles in the same order.
    return tuple(
        TileInstruction(
            f"fma.{dtype.name}.{rows}x{cols}x{depth}.{tm}x{tn}", "fma", f32.name, rows, cols, depth,
            (tm, tn), rows // tm * (cols // tn), dtype, dtype, share, None, 16 // dtype.bytes,
        )
        for rows, cols, depth, tm, tn, share in _FMA
        if dtype.bits == 32 or rows * cols <= 64 * 64
    )  # fmt: skip


def _mma(kind: str, element: DType, deepest: int) -> tuple[TileInstruction, ...]:
    return tuple(
        TileInstruction(
            f"mma.{kind}.{rows}x{cols}x{depth}.{wm}x{wn}", "mma", kind, rows, cols,
            min(depth, deepest), (rows // wm // 4, cols // wn // 8), 32 * wm * wn, element, f32,
            share, f"matrix.{kind}", drained=MMA_RUNS,
        )
        for rows, cols, depth, wm, wn, share in _MMA
    )  # fmt: skip


INSTRUCTIONS: dict[str, TileInstruction] = {
    tile.name: tile
    for family in (
        _fma(f32), _fma(f64), _fma(i32), _mma("f16", f16, 32), _mma("bf16", bf16, 32), _mma("tf32", f32, 16),
    )
    for tile in family
}  # fmt: skip


def _fma_attention(queries: int, rows: int, widest: int) -> AttentionBlock:
    workers = 8 * queries // rows
    name = f"attention.fma.{queries}x32.{rows}"
    return AttentionBlock(name, "fma", queries, 32, rows, workers, f32, 4, 32, widest, True, (4,))


def _mma_attention(kind: str, element: DType, queries: int, keys: int) -> AttentionBlock:
    warps = queries // 16
    name = f"attention.{kind}.{queries}x{keys}"
    return AttentionBlock(
        name, kind, queries, keys, warps, 32 * warps, element, 16, 16, 128, False, MMA_RUNS
    )


ATTENTION: dict[str, AttentionBlock] = {
    block.name: block
    for block in (
        *(_fma_attention(queries, 4, 128) for queries in (16, 32, 64)),
        *(_fma_attention(queries, 2, 256) for queries in (16, 32)),
        *(
            _mma_attention(kind, element, queries, keys)
            for kind, element, keys in (("f16", f16, 64), ("bf16", bf16, 64), ("tf32", f32, 32))
            for queries in (16, 32, 64)
        ),
    )
}


def attention_for(operand: DType, precision: str, machine: Machine) -> tuple[AttentionBlock, ...]:
    """The attention blocks for operands of this dtype in `precision` on a machine."""
    kind = _matrix_kind((operand, operand), f32, precision)
    if kind is None or not machine.can(f"matrix.{kind}"):
        kind = "fma"
    return tuple(b for b in ATTENTION.values() if b.kind == kind)


def instructions_for(
    operands: tuple[DType, DType], accumulator: DType, precision: str, machine: Machine
) -> tuple[TileInstruction, ...]:
    """The instructions that may compute a sum of products of these dtypes in `precision` on a machine."""
    kind = _matrix_kind(operands, accumulator, precision)
    if kind is not None and machine.can(f"matrix.{kind}"):
        return tuple(t for t in INSTRUCTIONS.values() if t.name.startswith(f"mma.{kind}."))
    if accumulator not in (f32, f64, i32):
        return ()
    return tuple(t for t in INSTRUCTIONS.values() if t.name.startswith(f"fma.{accumulator.name}."))


def _matrix_kind(operands: tuple[DType, DType], accumulator: DType, precision: str) -> str | None:
    """The matrix unit's element type that keeps the operands' own precision, or the one asked for."""
    if accumulator is not f32:
        return None
    if operands[0] is operands[1] and operands[0] in (f16, bf16):
        return operands[0].name
    return None if precision == "f32" else precision
