"""Prints contractions over packed panels as calls of ua/contract.h. Not here: loops (printer.py)."""

from __future__ import annotations

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import (
    Dim,
    FloorDiv,
    ceildiv,
    linear_split,
    simplify,
    substitute,
    symbol,
    terms,
)
from unistack_aot.codegen.ctree import Block, CNode, Directive, Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.mcir.accesses import accesses
from unistack_aot.mcir.nodes import Axis, Contract, Drain
from unistack_aot.mcir.transform import substitute_vars
from unistack_aot.targets.cpu.instructions import INSTRUCTIONS

PANEL = 16


def panel_call(stmt: Contract, drain: Drain, writer: KernelWriter) -> tuple[CNode, ...]:
    """`ua::contract(...)` for a contraction and the drain of its tile; `ua::contract_bf16(...)` for pairs of bf16."""
    via = INSTRUCTIONS[stmt.via]
    run, strides, base = _segments(stmt, writer)
    segments = stmt.depth[: len(stmt.depth) - _in_run(stmt.depth, strides, run)]
    shift, count = _shift_table(segments, strides, writer)
    row_block, cols_block, depth_block = stmt.blocks
    sums = writer.dialect.type(via.sums)
    packed = _packed_base(stmt, writer)
    fields = [
        packed,
        "shift",
        writer.printer.dim(count),
        str(run),
        str(depth_block),
        str(row_block),
        str(max(1, cols_block // PANEL)),
    ]
    if not via.gathered:
        fields.append(writer.printer.dim(_ahead(base, stmt, len(segments))))
    rows, cols = stmt.rows, stmt.cols
    first_panel = cols.first // PANEL
    last_panel = first_panel + ceildiv(cols.extent, PANEL)
    bounds = [rows.first, rows.first + rows.extent, first_panel, last_panel]
    row = Block(
        f"const auto row = [&](int64_t {identifier(rows.var)}) -> const {_held(stmt, writer)}*",
        (Line(f"return {identifier(stmt.a.buffer)} + {writer.printer.dim(base)};"),),
        ";",
    )
    done = Block(
        f"const auto done = [&](int64_t first, int count, int panel, int panels, const {sums}* tile)",
        _done(stmt, drain, sums, writer),
        ";",
    )
    numbers = ", ".join(f"{writer.printer.dim(b)}" for b in bounds)
    want = _want(drain, writer)
    function, kind = "contract", "Contraction"
    if via.gathered:
        function, kind = f"contract_{via.dtype}", "PairContraction"
    call = Line(f"ua::{function}(blocks, {numbers}, row, done{', want' if want else ''});")
    make = Line(f"const ua::{kind} blocks{{{', '.join(fields)}}};")
    return (Block("", (*shift, make, row, done, *want, call)),)


def _ahead(base: Dim, stmt: Contract, segments: int) -> Dim:
    """Prefetch distance in the left operand: a window's next input row; nothing for matrix products.

    The row of a window operand is at `m // width * distance + m % width * step`.
    """
    if segments < 2:
        return 0
    rows = symbol(stmt.rows.var)
    found = [
        coefficient
        for coefficient, atom in terms(base)[1]
        if isinstance(atom, FloorDiv) and atom.numerator == rows
    ]
    return min(found, default=0)


def _want(drain: Drain, writer: KernelWriter) -> tuple[CNode, ...]:
    """A function that requests the lines which the epilogue of a tile reads and writes, where these are plain rows."""
    env = {drain.rows.var: symbol("m"), drain.cols.var: symbol("at_panel") * PANEL}
    lines: dict[str, str] = {}
    layouts, scope = writer.printer.addresses.layouts, writer.printer.ranges
    scope["m"], scope["at_panel"] = (0, None), (0, None)
    for access in accesses(writer.kernel, drain.body, scope):
        moved = access.offset is not None and access.stride(drain.cols.var) == 1
        if not moved or not layouts[access.buffer].plain or access.stride(drain.rows.var) == 0:
            continue
        assert access.offset is not None
        place = simplify(substitute(access.offset, env), scope)
        function = "prefetch_for_write" if access.write else "prefetch<1>"
        text = f"ua::{function}({identifier(access.buffer)} + {writer.printer.dim(place)});"
        lines[access.buffer] = text
    del scope["m"], scope["at_panel"]
    if not lines:
        return ()
    inner = (Line("const int64_t at_panel = panel + q;"), *(Line(text) for text in lines.values()))
    rows = Block(
        "for (int p = 0; p < count; ++p)",
        (Line("const int64_t m = first + p;"), Block("for (int q = 0; q < panels; ++q)", inner)),
    )
    head = "const auto want = [&](int64_t first, int count, int panel, int panels)"
    return (Block(head, (rows,), ";"),)


def _segments(stmt: Contract, writer: KernelWriter) -> tuple[int, list[Dim], Dim]:
    """The contiguous run of the left operand, the stride of each depth axis, the offset without depth."""
    inner = dict(writer.printer.ranges)
    for axis in stmt.depth:
        top = axis.extent - 1 if isinstance(axis.extent, int) else None
        inner[axis.var] = (0, top if isinstance(top, int) else None)
    addresses = writer.printer.addresses
    shape, layout = addresses.shapes[stmt.a.buffer], addresses.layouts[stmt.a.buffer]
    rest: Dim = simplify(layout.offset(shape, stmt.a.index), inner)
    strides: list[Dim] = []
    for axis in stmt.depth:
        parts = linear_split(rest, axis.var)
        if parts is None:
            raise IRError(f"{stmt.a.buffer} is not linear in {axis.var}")
        stride, rest = parts
        strides.append(stride)
    run = 1
    for axis, stride in zip(reversed(stmt.depth), reversed(strides), strict=True):
        if stride != run or not isinstance(axis.extent, int):
            break
        run *= axis.extent
    return run, strides, rest


def _in_run(axes: tuple[Axis, ...], strides: list[Dim], run: int) -> int:
    """How many innermost axes form the run."""
    size, count = 1, 0
    for axis, stride in zip(reversed(axes), reversed(strides), strict=True):
        if size == run or stride != size or not isinstance(axis.extent, int):
            break
        size *= axis.extent
        count += 1
    return count


def _shift_table(
    axes: tuple[Axis, ...], strides: list[Dim], writer: KernelWriter
) -> tuple[tuple[CNode, ...], Dim]:
    count: Dim = 1
    offset: Dim = 0
    for axis, stride in zip(axes, strides, strict=False):
        count = count * axis.extent
        offset = offset + symbol(axis.var) * stride
    if not axes:
        return (Line("const int32_t* const shift = nullptr;"),), 1
    size = writer.printer.dim(count)
    fill: tuple[CNode, ...] = (Line(f"*next++ = int32_t({writer.printer.dim(offset)});"),)
    for axis in reversed(axes):
        fill = (Block(writer.header(identifier(axis.var), writer.printer.dim(axis.extent)), fill),)
    table = Line(
        f"int32_t* const shift = static_cast<int32_t*>(__builtin_alloca(sizeof(int32_t) * {size}));"
    )
    return (table, Line("int32_t* next = shift;"), *fill), count


def _packed_base(stmt: Contract, writer: KernelWriter) -> str:
    env: dict[str, Dim] = {stmt.cols.var: 0, **{axis.var: 0 for axis in stmt.depth}}
    index = tuple(substitute(i, env) for i in stmt.b.index)
    offset = writer.printer.offset(stmt.b.buffer, index)
    return f"{identifier(stmt.b.buffer)} + {writer.printer.dim(offset)}"


def _held(stmt: Contract, writer: KernelWriter) -> str:
    """The C type of the left operand in memory."""
    return writer.dialect.type(writer.kernel.param(stmt.a.buffer).dtype)


def _done(stmt: Contract, drain: Drain, sums: str, writer: KernelWriter) -> tuple[CNode, ...]:
    """The epilogue of a finished tile: panel by panel, row by row, 16 columns at once."""
    total = _total(drain.cols.first, drain.cols.extent, stmt, writer)
    place = symbol("at_panel") * PANEL + symbol("j")
    names = {drain.rows.var: symbol("m"), drain.cols.var: place}
    body = substitute_vars(drain.body, names)
    value = identifier(drain.value)
    scope = writer.printer.ranges
    scope["m"], scope["at_panel"], scope["j"] = (0, None), (0, None), (0, PANEL - 1)
    inner = (
        Line(f"const {sums} {value} = values[j];"),
        *writer.body(body),
    )
    for name in ("m", "at_panel", "j"):
        del scope[name]
    simd = Directive(writer.dialect.simd)
    whole = (simd, Block(f"for (int64_t j = 0; j < {PANEL}; ++j)", inner))
    if isinstance(total, int) and total % PANEL == 0:
        row_body: tuple[CNode, ...] = whole
    else:
        part = Block("for (int64_t j = 0; j < width; ++j)", inner)
        row_body = (Block(f"if (width == {PANEL})", whole), Block("else", (simd, part)))
    width = f"ua::min_index({PANEL}, {writer.printer.dim(total)} - at_panel * {PANEL})"
    values = f"const {sums}* const values = tile + (p * panels + q) * 16;"
    rows = Block(
        "for (int p = 0; p < count; ++p)",
        (Line("const int64_t m = first + p;"), Line(values), *row_body),
    )
    head = (Line("const int64_t at_panel = panel + q;"), Line(f"const int64_t width = {width};"))
    return (Block("for (int q = 0; q < panels; ++q)", (*head, Line("(void)width;"), rows)),)


def _total(first: Dim, extent: Dim, stmt: Contract, writer: KernelWriter) -> Dim:
    """Columns of the whole result that this task may touch: the end of its range."""
    return simplify(first + extent, writer.printer.ranges)
