"""Prints attention as calls of ua/attention.cuh: queries near, keys and values streamed, an online softmax.

Not here: which block sizes (schedule/attention_blocks.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.base.symbolic import Dim, simplify, symbol
from unistack_aot.codegen.ctree import Block, CNode, Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.ir.scalar import Name
from unistack_aot.mcir.nodes import Attend, Fill, Span, Stmt, View
from unistack_aot.mcir.transform import substitute_vars, walk
from unistack_aot.schedule.attention_blocks import AttentionBlock, AttentionShape, shape_of
from unistack_aot.targets.cuda.fills import Near, fill_nodes
from unistack_aot.targets.cuda.instructions import ATTENTION
from unistack_aot.targets.cuda.wide import Wide

KEY = "key0"


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """The attention statement of a kernel and the block that realises it."""

    stmt: Attend
    block: AttentionBlock
    shape: AttentionShape
    depth: int

    @property
    def shared_bytes(self) -> int:
        """Shared bytes: queries, `depth` stages of keys and values, scratch."""
        return self.block.near_bytes(self.shape, self.depth)


def find_attend(body: tuple[Stmt, ...]) -> AttentionKernel | None:
    """The attention statement of a kernel body, if it has one."""
    stmt = next((s for s in walk(body) if isinstance(s, Attend)), None)
    if stmt is None:
        return None
    name, _, depth = stmt.via.rpartition(".")
    block = ATTENTION[name]
    return AttentionKernel(stmt, block, shape_of(stmt.depth, stmt.values, block), int(depth))


def attend_nodes(found: AttentionKernel, writer: KernelWriter) -> tuple[CNode, ...]:
    """The whole statement."""
    stmt, block = found.stmt, found.block
    words = writer.printer
    fill, use = _fill(found, writer), _use(found, writer)
    steps = words.dim(simplify(-(-stmt.keys.extent // block.keys), words.ranges))
    with writer.scope(stmt.depth.var, stmt.depth.extent):
        query = _query(found, writer)
    return (
        Line(f"typedef {_type(found)} Heads;"),
        *_pointers(found),
        Line("Heads::State state;"),
        Line("state.clear();"),
        *query,
        Block("const auto fill = [&](int step, int stage)", fill, ";"),
        Block("const auto use = [&](int step, int stage)", use, ";"),
        Line(f"ua::stream_tiles_numbered<{found.depth}>({steps}, fill, use);"),
        Line("Heads::finish(state);"),
        *_results(found, writer),
    )


def _type(found: AttentionKernel) -> str:
    block, shape = found.block, found.shape
    numbers = f"{block.queries}, {block.keys}, {shape.depth}, {shape.values}, {block.split}"
    if block.kind == "fma":
        return f"ua::FmaAttention<{numbers}>"
    return f"ua::MmaAttention<ua::{block.kind}, {numbers}>"


def _pointers(found: AttentionKernel) -> tuple[CNode, ...]:
    lines: list[CNode] = []
    place = "shared"
    for name, kind, stages in (
        ("q_near", "QTile", 1),
        ("k_near", "KTile", found.depth),
        ("v_near", "VTile", found.depth),
    ):
        lines.append(Line(f"auto* const {name} = reinterpret_cast<Heads::Element*>({place});"))
        lines.append(
            Line(f"constexpr int {name}_stage = Heads::{kind}::bytes / sizeof(Heads::Element);")
        )
        place = f"{name} + {stages} * {name}_stage"
    total = (
        f"Heads::QTile::bytes + {found.depth} * (Heads::KTile::bytes + Heads::VTile::bytes)"
        " + Heads::scratch_bytes"
    )
    lines.append(Line(f"void* const scratch = {place};"))
    lines.append(Line(f'static_assert({total} == {found.shared_bytes}, "near bytes");'))
    return tuple(lines)


def _near(found: AttentionKernel, name: str, rows: int, cols: int, staged: bool) -> Near:
    kind = f"Heads::{name[0].upper()}Tile"
    place = f"{name} + stage * {name}_stage" if staged else name
    return Near(kind, (rows, cols), found.block.workers, found.block.element, place)


def _query(found: AttentionKernel, writer: KernelWriter) -> tuple[CNode, ...]:
    stmt = found.stmt
    depth = Span(stmt.depth.var, 0, stmt.depth.extent)
    near = _near(found, "q_near", found.block.queries, found.shape.depth, False)
    return fill_nodes(Fill("q_near", stmt.rows, depth, stmt.q), near, writer, {})


def _fill(found: AttentionKernel, writer: KernelWriter) -> tuple[CNode, ...]:
    """Keys and values of one step."""
    stmt, block = found.stmt, found.block
    kind = writer.dialect.index_type
    keys = _keys(found)
    nodes: list[CNode] = [Line(f"const {kind} {KEY} = step * {block.keys};")]
    multiples: dict[str, Dim] = {KEY: symbol("slab") * block.keys}
    scope = writer.printer.ranges
    scope[KEY] = (0, None)
    parts: tuple[tuple[str, Span, View, int], ...] = (
        ("k_near", Span(stmt.depth.var, 0, stmt.depth.extent), stmt.k, found.shape.depth),
        ("v_near", Span(stmt.values.var, 0, stmt.values.extent), stmt.v, found.shape.values),
    )
    for name, across, view, cols in parts:
        near = _near(found, name, block.keys, cols, True)
        nodes += fill_nodes(Fill(name, keys, across, view), near, writer, multiples)
    del scope[KEY]
    return tuple(nodes)


def _keys(found: AttentionKernel) -> Span:
    stmt, size = found.stmt, found.block.keys
    count = stmt.keys.extent
    whole = isinstance(count, int) and count % size == 0
    rest = size if whole else count - symbol(KEY)
    return Span(stmt.keys.var, symbol(KEY), rest)


def _use(found: AttentionKernel, writer: KernelWriter) -> tuple[CNode, ...]:
    """Scores of one step, scaled and masked in place, absorbed into the state."""
    stmt, kind, words = found.stmt, writer.dialect.index_type, writer.printer
    scope = words.ranges
    scope[KEY] = scope[stmt.rows.var] = scope[stmt.keys.var] = (0, None)
    keys = _keys(found)
    dot = Name(stmt.dot, stmt.score.dtype)
    lines, score = words.bind(stmt.score, {dot: "value"})
    guards = [
        f"{local} < {words.dim(span.extent)}"
        for local, span in (("row", stmt.rows), ("key", keys))
        if not isinstance(span.extent, int)
    ]
    inside: tuple[CNode, ...] = (
        Line(f"const {kind} {identifier(stmt.rows.var)} = {words.dim(stmt.rows.first)} + row;"),
        Line(f"const {kind} {identifier(stmt.keys.var)} = {KEY} + key;"),
        *lines,
        Line(f"value = {score};"),
    )
    for name in (KEY, stmt.rows.var, stmt.keys.var):
        scope.pop(name, None)
    if guards:
        inside = (
            Block(f"if ({' && '.join(guards)})", inside),
            Block("else", (Line("value = -INFINITY;"),)),
        )
    head = "Heads::for_each_score(scores, [&](int row, int key, float& value)"
    return (
        Line(f"const {kind} {KEY} = step * {found.block.keys};"),
        Line("Heads::Scores scores;"),
        Line("Heads::scores_of(scores, q_near, k_near + stage * k_near_stage);"),
        Block(head, inside, ");"),
        Line("Heads::absorb(state, scores, v_near + stage * v_near_stage, scratch);"),
    )


def _results(found: AttentionKernel, writer: KernelWriter) -> tuple[CNode, ...]:
    """The statements per row and value, in runs of adjacent values."""
    stmt, kind, words = found.stmt, writer.dialect.index_type, writer.printer
    whole = stmt.run > 1
    run = stmt.run if whole else min(found.block.runs)
    count = stmt.values.extent
    scope = words.ranges
    scope[stmt.rows.var] = scope["first_col"] = (0, None)
    wide = ResultWide("e", run if whole else 1, writer)
    wide.names[Name(stmt.out, stmt.score.dtype)] = "values[e]"
    column = symbol("first_col") + symbol("e")
    body = wide.run(substitute_vars(stmt.body, {stmt.values.var: column}), run)
    for name in (stmt.rows.var, "first_col"):
        del scope[name]
    guards = (
        [f"row < {words.dim(stmt.rows.extent)}"] if not isinstance(stmt.rows.extent, int) else []
    )
    if whole and count != found.shape.values:
        guards.append(f"col < {words.dim(count)}")
    if not whole:
        body = (Block(f"for (int e = 0; e < {run} && col + e < {words.dim(count)}; ++e)", body),)
    inner: tuple[CNode, ...] = (
        Line(f"const {kind} {identifier(stmt.rows.var)} = {words.dim(stmt.rows.first)} + row;"),
        Line(f"const {kind} first_col = col;"),
        *body,
    )
    if guards:
        inner = (Block(f"if ({' && '.join(guards)})", inner),)
    head = f"Heads::for_each_run<{run}>(state, [&](int row, int col, auto* values)"
    return (Block(head, inner, ");"),)


class ResultWide(Wide):
    """Adjacent values of one row; the first one's number is a multiple of the run."""

    def run(self, body: tuple[Stmt, ...], run: int) -> tuple[CNode, ...]:
        """The statements of one run, wide if the width allows it."""
        self.writer.printer.ranges[self.var] = (0, run - 1)
        self.aligned = {"first_col": symbol("run_number") * run}
        nodes = self.around(body) if self.width > 1 else self.narrow(body)
        del self.writer.printer.ranges[self.var]
        return nodes
