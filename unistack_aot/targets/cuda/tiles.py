"""Prints contractions over near tiles: the tile's type, the stream that fills near memory, the drain.

Not here: loops, folds (printer.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.base.symbolic import bounds, simplify, symbol, symbols
from unistack_aot.codegen.ctree import Block, CNode, Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.ir.scalar import Name
from unistack_aot.mcir.nodes import Contract, Drain, Fill, Space, Stmt, Stream, Tile
from unistack_aot.mcir.transform import walk
from unistack_aot.schedule.tile_instruction import TileInstruction
from unistack_aot.targets.cuda.fills import Near, fill_nodes
from unistack_aot.targets.cuda.instructions import INSTRUCTIONS
from unistack_aot.targets.cuda.wide import Wide


@dataclass(frozen=True, slots=True)
class TileKernel:
    """The tile statements of one kernel, found before anything is printed."""

    instruction: TileInstruction
    contract: Contract
    stream: Stream
    near: dict[str, Tile]

    @property
    def a_inner(self) -> bool:
        """Whether depth is contiguous in the left near tile."""
        return self.contract.rows.var in symbols(self.contract.a.index[0])

    @property
    def b_inner(self) -> bool:
        """Whether depth is contiguous in the right near tile."""
        return self.contract.cols.var in symbols(self.contract.b.index[0])

    @property
    def stage_bytes(self) -> int:
        """Shared bytes of one stage."""
        return sum(self.bytes_of(tile) for tile in self.near.values())

    def bytes_of(self, tile: Tile) -> int:
        """Shared bytes of one near tile."""
        rows, cols = tile.shape
        assert isinstance(rows, int) and isinstance(cols, int)
        inner = self.a_inner if tile.name == self.contract.a.buffer else self.b_inner
        return self.instruction.near_bytes(rows, cols, inner)

    @property
    def shared_bytes(self) -> int:
        """Shared bytes of all stages."""
        return self.stage_bytes * self.stream.depth

    def type_of(self, tile: str) -> str:
        """The header's type of a near tile."""
        return "Block::ATile" if tile == self.contract.a.buffer else "Block::BTile"


def find_tiles(body: tuple[Stmt, ...]) -> TileKernel | None:
    """The tile statements of a kernel body, if it has any."""
    statements = list(walk(body))
    contract = next((s for s in statements if isinstance(s, Contract)), None)
    stream = next((s for s in statements if isinstance(s, Stream)), None)
    if contract is None or stream is None:
        return None
    near = {s.name: s for s in statements if isinstance(s, Tile) and s.space is Space.NEAR}
    return TileKernel(INSTRUCTIONS[contract.via], contract, stream, near)


def block_type(instruction: TileInstruction, a_inner: bool, b_inner: bool) -> str:
    """The header's type that realises a tile instruction for operands of these orders."""
    engine, kind, shape, split = instruction.name.split(".")
    rows, cols, _ = shape.split("x")
    first, second = split.split("x")
    element = {"f32": "float", "f64": "double", "i32": "int32_t"}.get(kind, f"ua::{kind}")
    orders = ", ".join(
        f"ua::Operand::{'k_inner' if inner else 'k_outer'}" for inner in (a_inner, b_inner)
    )
    family = "Fma" if engine == "fma" else "Mma"
    numbers = f"{rows}, {cols}, {instruction.depth}, {first}, {second}"
    return f"ua::{family}Tile<{element}, {numbers}, {orders}>"


def tile_statement(
    stmt: Tile | Fill | Contract | Drain | Stream, tiles: TileKernel, writer: KernelWriter
) -> tuple[CNode, ...]:
    """One tile statement of a contraction kernel."""
    match stmt:
        case Tile() if stmt.space is Space.REG:
            acc = identifier(stmt.name)
            return (
                Line(
                    f"typedef {block_type(tiles.instruction, tiles.a_inner, tiles.b_inner)} Block;"
                ),
                Line(f'static_assert({_declared_bytes()} == {tiles.stage_bytes}, "near bytes");'),
                Line(f"Block::Accumulator {acc};"),
                Line(f"{acc}.clear();"),
            )
        case Tile():
            return _near_tile(stmt, tiles)
        case Stream():
            return _stream(stmt, tiles, writer)
        case Drain():
            return _drain(stmt, tiles, writer)
        case Fill():
            return fill_nodes(stmt, near_of(stmt, tiles), writer, {})
        case Contract():
            a, b = (_at_stage(v.buffer) for v in (stmt.a, stmt.b))
            return (Line(f"Block::mma({identifier(stmt.acc)}, {a}, {b});"),)


def _declared_bytes() -> str:
    return "Block::ATile::bytes + Block::BTile::bytes"


def _near_tile(tile: Tile, tiles: TileKernel) -> tuple[CNode, ...]:
    """A near tile's pointer: stages of one operand after those of the other."""
    place = 0
    for name, other in tiles.near.items():
        if name == tile.name:
            break
        place += tiles.bytes_of(other) * tiles.stream.depth
    name = identifier(tile.name)
    return (
        Line(f"auto* const {name} = reinterpret_cast<Block::Element*>(shared + {place});"),
        Line(f"constexpr int {name}_stage = {tiles.type_of(tile.name)}::bytes / sizeof(Block::Element);"),
    )  # fmt: skip


def near_of(fill: Fill, tiles: TileKernel) -> Near:
    """The near tile that a fill writes."""
    instruction = tiles.instruction
    kind = tiles.type_of(fill.tile)
    rows, cols = tiles.near[fill.tile].shape
    assert isinstance(rows, int) and isinstance(cols, int)
    place = _at_stage(fill.tile)
    return Near(kind, (rows, cols), instruction.workers, instruction.element, place)


def _at_stage(tile: str) -> str:
    return f"{identifier(tile)} + stage * {identifier(tile)}_stage"


def _stream(stream: Stream, tiles: TileKernel, writer: KernelWriter) -> tuple[CNode, ...]:
    """The pipeline: fills run ahead of the contraction by depth - 1 steps; barriers are the header's."""
    fills = tuple(s for s in stream.body if isinstance(s, Fill))
    uses = tuple(s for s in stream.body if isinstance(s, Contract))
    kind, var = writer.dialect.index_type, identifier(stream.var)
    first = Line(f"const {kind} {var} = step * {stream.step};")
    high = bounds(stream.extent, writer.printer.ranges)[1]
    writer.printer.ranges[stream.var] = (0, None if high is None else high - 1)
    slabs = {stream.var: symbol("slab") * stream.step}
    filling = (
        first,
        *(node for s in fills for node in fill_nodes(s, near_of(s, tiles), writer, slabs)),
    )
    using = tuple(node for s in uses for node in tile_statement(s, tiles, writer))
    del writer.printer.ranges[stream.var]
    steps = writer.printer.dim(simplify(-(-stream.extent // stream.step), writer.printer.ranges))
    return (
        Block("const auto fill = [&](int step, int stage)", filling, ";"),
        Block("const auto use = [&](int stage)", using, ";"),
        Line(f"ua::stream_tiles<{stream.depth}>({steps}, fill, use);"),
    )


# --- the drain -----------------------------------------------------------------------------------------


def _drain(drain: Drain, tiles: TileKernel, writer: KernelWriter) -> tuple[CNode, ...]:
    """The epilogue over this thread's elements, in runs of adjacent columns where results are contiguous."""
    run = drain.run
    words, kind = writer.printer, writer.dialect.index_type
    rows, cols = drain.rows, drain.cols
    guards = [
        f"{local} < {words.dim(span.extent)}"
        for local, span in (("row", rows), ("col", cols))
        if not isinstance(span.extent, int)
    ]
    scope = words.ranges
    scope[rows.var] = scope["first_col"] = (0, None)
    value = Name(drain.value, tiles.instruction.accumulator)
    wide = DrainWide("e", run, writer, drain, value)
    inner = wide.body()
    for name in (rows.var, "first_col"):
        del scope[name]
    place = (
        Line(f"const {kind} {identifier(rows.var)} = {words.dim(rows.first)} + row;"),
        Line(f"const {kind} first_col = {words.dim(cols.first)} + col;"),
        *inner,
    )
    guarded: tuple[CNode, ...] = (Block(f"if ({' && '.join(guards)})", place),) if guards else place
    acc = identifier(drain.acc)
    if run > 1:
        head = f"Block::for_each_run<{run}>({acc}, [&](int row, int col, auto* values)"
        return (Block(head, guarded, ");"),)
    head = f"Block::for_each({acc}, [&](int row, int col, auto value)"
    return (Block(head, guarded, ");"),)


class DrainWide(Wide):
    """Adjacent columns of a drained row; their first column is a multiple of the width."""

    def __init__(
        self, var: str, width: int, writer: KernelWriter, drain: Drain, value: Name
    ) -> None:
        super().__init__(var, width, writer)
        self.drain = drain
        self.names[value] = f"values[{var}]" if width > 1 else "value"

    def body(self) -> tuple[CNode, ...]:
        """The drain's statements over one run."""
        column = symbol("first_col") + (symbol(self.var) if self.width > 1 else 0)
        body = self.substituted(self.drain.body, {self.drain.cols.var: column})
        if self.width == 1:
            return self.narrow(body)
        self.writer.printer.ranges[self.var] = (0, self.width - 1)
        self.aligned = {"first_col": symbol("run_number") * self.width}
        nodes = self.around(body)
        del self.writer.printer.ranges[self.var]
        return nodes
