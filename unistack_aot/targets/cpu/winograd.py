"""Prints a convolution by F(4x4, 3x3) as a call of ua/winograd.h. Not here: direct convolutions (tiles.py)."""

from __future__ import annotations

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, linear_split, substitute, symbol
from unistack_aot.codegen.ctree import Block, CNode, Directive, Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.mcir.nodes import Contract, Drain
from unistack_aot.mcir.transform import substitute_vars
from unistack_aot.mcir.winograd import TILE

PANEL = 16
PIXELS = TILE * TILE


def winograd_call(stmt: Contract, drain: Drain, writer: KernelWriter) -> tuple[CNode, ...]:
    """`ua::winograd(...)` for a contraction over pixels in tile order and the drain of its tile."""
    height, width, _ = stmt.blocks
    show = writer.printer.dim
    start, strides = _strides(stmt, writer)
    packed = writer.kernel.param(stmt.b.buffer)
    fields = [
        f"{identifier(stmt.a.buffer)} + {show(start)}",
        show(strides[0]),
        show(strides[1]),
        show(packed.shape[2] // PANEL),
        show(packed.shape[1]),
        identifier(stmt.b.buffer),
        str(height),
        str(width),
    ]
    first = stmt.rows.first // PIXELS
    last = (stmt.rows.first + stmt.rows.extent) // PIXELS
    done = Block(
        "const auto done = [&](int panel, int at_y, int at_x, int count, const float* tile)",
        _done(stmt, drain, width, writer),
        ";",
    )
    call = f"ua::winograd(image, int({show(first)}), int({show(last)}), done);"
    make = f"const ua::Winograd image{{{', '.join(fields)}}};"
    return (Block("", (Line(make), done, Line(call))),)


def _strides(stmt: Contract, writer: KernelWriter) -> tuple[Dim, list[Dim]]:
    """The offset of the first pixel's first tap, and the distance of neighbours along each depth axis."""
    for axis in stmt.depth:
        top = axis.extent - 1 if isinstance(axis.extent, int) else None
        writer.printer.ranges[axis.var] = (0, top)
    start: Dim = writer.printer.offset(stmt.a.buffer, stmt.a.index)
    for axis in stmt.depth:
        del writer.printer.ranges[axis.var]
    strides: list[Dim] = []
    for axis in stmt.depth:
        parts = linear_split(start, axis.var)
        if parts is None:
            raise IRError(f"{stmt.a.buffer} is not linear in {axis.var}")
        strides.append(parts[0])
        start = parts[1]
    return substitute(start, {stmt.rows.var: 0}), strides


def _done(stmt: Contract, drain: Drain, width: int, writer: KernelWriter) -> tuple[CNode, ...]:
    """The epilogue of up to four neighbouring pixels of a tile and one panel of channels."""
    across = width // TILE
    names = ("tile_y", "tile_x", "row", "p", "panel", "j")
    tile_y, tile_x, row, p, panel, lane = (symbol(name) for name in names)
    pixel = (tile_y * across + tile_x) * PIXELS + row * TILE + p
    env: dict[str, Dim] = {drain.rows.var: pixel, drain.cols.var: panel * PANEL + lane}
    tops = (None, across - 1, TILE - 1, TILE - 1, None, PANEL - 1)
    value, scope = identifier(drain.value), writer.printer.ranges
    for name, top in zip(names, tops, strict=True):
        scope[name] = (0, top)
    inner = (
        Line(f"const float {value} = tile[p * {PANEL} + j];"),
        *writer.body(substitute_vars(drain.body, env)),
    )
    for name in names:
        del scope[name]
    total = stmt.cols.extent
    assert isinstance(total, int)
    whole = total % PANEL == 0
    last = str(PANEL) if whole else f"ua::min_index({PANEL}, {total} - panel * {PANEL})"
    lanes = Block("for (int64_t j = 0; j < width; ++j)", inner)
    return (
        Line(f"const int64_t tile_y = at_y / {TILE}, row = at_y % {TILE}, tile_x = at_x / {TILE};"),
        Line(f"{'constexpr' if whole else 'const'} int64_t width = {last};"),
        Block(
            "for (int64_t p = 0; p < count; ++p)",
            (Directive(writer.dialect.simd), lanes),
        ),
    )
