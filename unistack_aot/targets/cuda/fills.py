"""Prints how near tiles are filled: tile copies of strided matrices, gathers of everything else.

Not here: pipelines (tiles.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import (
    Dim,
    Min,
    divisible,
    linear_split,
    simplify,
    substitute,
    symbol,
    symbols,
    terms,
)
from unistack_aot.codegen.ctree import Block, CNode, Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.ir.scalar import Index, Load, postorder
from unistack_aot.mcir.nodes import Fill


@dataclass(frozen=True, slots=True)
class Near:
    """A near tile as the headers see it: its type, shape, the threads that fill it, element dtype, pointer."""

    type: str
    shape: tuple[int, int]
    workers: int
    element: DType
    place: str


def fill_nodes(
    fill: Fill, near: Near, writer: KernelWriter, multiples: Mapping[str, Dim]
) -> tuple[CNode, ...]:
    """A plain tile copy where memory is a strided matrix, an element-wise gather otherwise.

    `multiples` says of index variables what they are multiples of: {"k0": slab * 16}; alignment follows from it.
    """
    source = next(p for p in writer.kernel.params if p.name == fill.source.buffer)
    nodes = None
    if fill.source.within is None and source.dtype is near.element:
        nodes = _matrix_copy(fill, near, writer, multiples)
    run = _run(fill, near, writer, multiples) if source.dtype is near.element else 0
    return nodes or _gathered(fill, source.dtype, near, writer, run)


def _offset(fill: Fill, near: Near, writer: KernelWriter, multiples: Mapping[str, Dim]) -> Dim:
    """The source's element offset over tile coordinates `row` and `col`."""
    env: dict[str, Dim] = {
        fill.rows.var: fill.rows.first + symbol("row"),
        fill.cols.var: fill.cols.first + symbol("col"),
    }
    scope = writer.printer.ranges
    held = dict(scope)
    scope["row"], scope["col"] = (0, near.shape[0] - 1), (0, near.shape[1] - 1)
    scope["slab"] = (0, None)
    index = tuple(substitute(substitute(e, env), multiples) for e in fill.source.index)
    result = writer.printer.offset(fill.source.buffer, index)
    scope.clear()
    scope.update(held)
    return result


def _matrix_copy(
    fill: Fill, near: Near, writer: KernelWriter, multiples: Mapping[str, Dim]
) -> tuple[CNode, ...] | None:
    """`ua::copy_tile_async` if the source is base + row * pitch + col, aligned for copies of 4 bytes at least."""
    plain, aligned = (_split(_offset(fill, near, writer, env)) for env in ({}, multiples))
    if plain is None:
        plain = aligned
    if plain is None or aligned is None:
        return None
    pitch, _ = plain
    if isinstance(pitch, int) and pitch < 0:
        return None
    size = near.element.bytes
    fitting = (w for w in (16, 8, 4) if w >= size and _even(aligned, w // size))
    width = next(fitting, None)
    if width is None:
        return None
    words = writer.printer
    back: dict[str, Dim] = {}
    for name, multiple in multiples.items():
        factor = linear_split(multiple, "slab")
        assert factor is not None
        back["slab"] = symbol(name) // factor[0]
    base = plain[1]
    if "slab" in getattr(base, "symbols", ()):
        base = simplify(substitute(base, back), words.ranges)
    source = f"{identifier(fill.source.buffer)} + {words.dim(base)}"
    numbers = f"{words.dim(pitch)}, {words.dim(fill.rows.extent)}, {words.dim(fill.cols.extent)}"
    kind = f"{near.type}, {near.workers}, {width}"
    call = f"ua::copy_tile_async<{kind}>({near.place}, {source}, {numbers}, ua::thread_index());"
    return (Line(call),)


def _split(offset: Dim) -> tuple[Dim, Dim] | None:
    """(pitch, base) of an offset base + row * pitch + col."""
    along = linear_split(offset, "col")
    if along is None or along[0] != 1:
        return None
    return linear_split(along[1], "row")


def _even(place: tuple[Dim, Dim], elements: int) -> bool:
    return all(divisible(part, elements) for part in place)


def _run(fill: Fill, near: Near, writer: KernelWriter, multiples: Mapping[str, Dim]) -> int:
    """Bytes that lie side by side in memory and in the tile, aligned and guarded as one: 16, 8 or 4; 0 if fewer."""
    size = near.element.bytes
    fitting = (
        w
        for w in (16, 8, 4)
        if w >= size and _side_by_side(fill, near, w // size, writer, multiples)
    )
    return next(fitting, 0)


def _side_by_side(
    fill: Fill, near: Near, width: int, writer: KernelWriter, multiples: Mapping[str, Dim]
) -> bool:
    """Whether `width` neighbouring columns of the tile are one aligned run of the source, all inside or all outside."""
    if width == 1:
        return True
    env: dict[str, Dim] = {
        fill.rows.var: fill.rows.first + symbol("row"),
        fill.cols.var: fill.cols.first + symbol("run") * width + symbol("lane"),
    }
    scope = writer.printer.ranges
    inside = {
        **scope,
        "row": (0, near.shape[0] - 1),
        "run": (0, near.shape[1] // width - 1),
        "lane": (0, width - 1),
        "slab": (0, None),
    }

    def placed(value: Dim) -> Dim:
        return simplify(substitute(substitute(value, env), multiples), inside)

    if not all(divisible(placed(end), width) for end in _ends(fill.cols.extent)):
        return False
    if fill.source.within is not None:
        for node in postorder(fill.source.within):
            if isinstance(node, Load):
                return False
            if isinstance(node, Index) and "lane" in symbols(placed(node.dim)):
                return False
    held = dict(scope)
    scope.update(inside)
    index = tuple(placed(entry) for entry in fill.source.index)
    along = linear_split(writer.printer.offset(fill.source.buffer, index), "lane")
    scope.clear()
    scope.update(held)
    return along is not None and along[0] == 1 and divisible(along[1], width)


def _ends(extent: Dim) -> tuple[Dim, ...]:
    """The extents of which one is the least."""
    const, parts = terms(extent)
    if const == 0 and len(parts) == 1 and parts[0][0] == 1 and isinstance(parts[0][1], Min):
        return parts[0][1].args
    return (extent,)


def _gathered(
    fill: Fill, dtype: DType, near: Near, writer: KernelWriter, run: int
) -> tuple[CNode, ...]:
    """Runs of `run` bytes asynchronously; element by element through registers if there are none."""
    words, kind = writer.printer, writer.dialect.index_type
    direct = run > 0
    element = writer.dialect.type(near.element)
    outside = f"static_cast<{kind}>(-1)" if direct else f"{element}()"
    spans = (("row", fill.rows), ("col", fill.cols))
    conditions = [
        f"{local} >= {words.dim(span.extent)}"
        for (local, span), size in zip(spans, near.shape, strict=True)
        if span.extent != size
    ]
    inner: list[CNode] = []
    if conditions:
        inner.append(Line(f"if ({' || '.join(conditions)}) return {outside};"))
    held = dict(words.ranges)
    for local, span in spans:
        inner.append(
            Line(f"const {kind} {identifier(span.var)} = {words.dim(span.first)} + {local};")
        )
        words.ranges[span.var] = (0, None)
    if fill.source.within is not None:
        lines, condition = words.bind(fill.source.within, {})
        inner += [*lines, Line(f"if (!({condition})) return {outside};")]
    offset = words.dim(words.offset(fill.source.buffer, fill.source.index))
    words.ranges.clear()
    words.ranges.update(held)
    buffer, types = identifier(fill.source.buffer), f"{near.type}, {near.workers}"
    head = "[&](int row, int col)"
    if direct:
        inner.append(Line(f"return static_cast<{kind}>({offset});"))
        start = f"ua::gather_tile_async<{types}, {run}>({near.place}, {buffer}, ua::thread_index(), {head}"
    else:
        source = writer.dialect.type(dtype)
        inner.append(Line(f"return ua::cast<{element}, {source}>({buffer}[{offset}]);"))
        start = f"ua::fill_tile<{types}>({near.place}, ua::thread_index(), {head}"
    return (Block(start, tuple(inner), ");"),)
