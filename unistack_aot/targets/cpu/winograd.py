"""Prints a convolution by F(m x m, 3x3) as a call of ua/winograd.h. Not here: direct convolutions (tiles.py)."""

from __future__ import annotations

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, ceildiv, divisible, linear_split, substitute, symbol
from unistack_aot.codegen.ctree import Block, CNode, Directive, Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.mcir.nodes import Contract, Drain
from unistack_aot.mcir.transform import substitute_vars
from unistack_aot.mcir.winograd import FORMS

PANEL = 16


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
    side = FORMS[stmt.via].tile
    spans = ((stmt.rows, side**2), (stmt.cols, PANEL))
    bounds = [(span.first // unit, span.first + span.extent, unit) for span, unit in spans]
    numbers = [f"int({show(n)})" for a, b, unit in bounds for n in (a, ceildiv(b, unit))]
    done = Block(
        "const auto done = [&](int panel, int at_y, int at_x, int count, const float* tile)",
        _done(stmt, drain, writer),
        ";",
    )
    call = f"ua::winograd<{side}>(image, {', '.join(numbers)}, done);"
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


def _done(stmt: Contract, drain: Drain, writer: KernelWriter) -> tuple[CNode, ...]:
    """The epilogue of the neighbouring pixels in one row of a tile and one panel of channels."""
    side = FORMS[stmt.via].tile
    across = stmt.blocks[1] // side
    names = ("tile_y", "tile_x", "row", "p", "panel", "j")
    tile_y, tile_x, row, p, panel, lane = (symbol(name) for name in names)
    pixel = (tile_y * across + tile_x) * side**2 + row * side + p
    env: dict[str, Dim] = {drain.rows.var: pixel, drain.cols.var: panel * PANEL + lane}
    tops = (None, across - 1, side - 1, side - 1, None, PANEL - 1)
    value, scope = identifier(drain.value), writer.printer.ranges
    for name, top in zip(names, tops, strict=True):
        scope[name] = (0, top)
    inner = (
        Line(f"const float {value} = tile[p * {PANEL} + j];"),
        *writer.body(substitute_vars(drain.body, env)),
    )
    for name in names:
        del scope[name]
    end = stmt.cols.first + stmt.cols.extent
    whole = divisible(end, PANEL)
    last = f"ua::min_index({PANEL}, {writer.printer.dim(end)} - panel * {PANEL})"
    lanes = Block("for (int64_t j = 0; j < width; ++j)", inner)
    return (
        Line(f"const int64_t tile_y = at_y / {side}, row = at_y % {side}, tile_x = at_x / {side};"),
        Line(f"constexpr int64_t width = {PANEL};" if whole else f"const int64_t width = {last};"),
        Block(
            "for (int64_t p = 0; p < count; ++p)",
            (Directive(writer.dialect.simd), lanes),
        ),
    )
