"""Prints a row of windows with weights of their own per channel as a call of ua/conv.h: depthwise convolutions.

Not here: other loops around folds (lanes.py), convolutions over channels (tiles.py).
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product

from unistack_aot.base.dtypes import f32
from unistack_aot.base.symbolic import Dim
from unistack_aot.codegen.ctree import Block, CNode, Directive, Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.ir.scalar import Call
from unistack_aot.mcir.nodes import Fold, Let, Loop, Role, Stmt, Store
from unistack_aot.targets.cpu.linear_load import Linear, linear_load
from unistack_aot.targets.cpu.tiles import PANEL


def window_row(body: tuple[Stmt, ...], writer: KernelWriter) -> tuple[CNode, ...] | None:
    """The call for a loop over pixels around a block of channels that each sum a window; None for another loop.

    Pixels share a weight once it is in a register; one by one they load it again for each product.
    """
    found = _parts(body)
    if found is None:
        return None
    pixels, lanes, fold, tail = found
    taps = [range(axis.extent) for axis in fold.axes if isinstance(axis.extent, int)]
    with writer.scope(pixels.var, pixels.extent), writer.scope(lanes.var, PANEL):
        loads = _linear(fold, (lanes.var, pixels.var), writer)
        if loads is None:
            return None
        windows, weights = loads
        across, *along = windows.steps[1:]
        points = [_dot(point, along) for point in product(*taps)]
        count, var = len(points), identifier(pixels.var)
        shift = ", ".join(
            str(point) if isinstance(point, int) else f"int32_t({writer.printer.dim(point)})"
            for point in points
        )
        value, lane = identifier(fold.states[0]), identifier(lanes.var)
        each = Block(
            f"for (int64_t {lane} = 0; {lane} < {PANEL}; ++{lane})",
            (Line(f"const float {value} = tile[p * {PANEL} + {lane}];"), *writer.body(tail)),
        )
        inner = (Line(f"const int64_t {var} = from + p;"), Directive(writer.dialect.simd), each)
        rows = Block("for (int p = 0; p < count; ++p)", inner)
        head = "const auto done = [&](int64_t from, int count, const float* tile)"
        places = [
            f"{identifier(each.buffer)} + {writer.printer.dim(each.first)}"
            for each in (windows, weights)
        ]
        step, extent = writer.printer.dim(across), writer.printer.dim(pixels.extent)
        call = f"{places[0]}, {step}, {places[1]}, shift, {count}, {extent}, done"
    table = Line(f"const int32_t shift[{count}] = {{{shift}}};")
    return (table, Block(head, (rows,), ";"), Line(f"ua::depthwise_row({call});"))


def _parts(body: tuple[Stmt, ...]) -> tuple[Loop, Loop, Fold, tuple[Stmt, ...]] | None:
    """The loop over pixels, the one over lanes, the fold and what follows it."""
    pixels = body[0] if len(body) == 1 else None
    if not isinstance(pixels, Loop) or pixels.role is not Role.SEQ or pixels.step != 1:
        return None
    lanes = pixels.body[0] if len(pixels.body) == 1 else None
    if not isinstance(lanes, Loop) or lanes.role is not Role.VECTOR or lanes.extent != PANEL:
        return None
    fold, *tail = lanes.body
    plain = all(isinstance(stmt, Let | Store) for stmt in tail)
    if not isinstance(fold, Fold) or fold.body or fold.monoid != "sum" or not plain:
        return None
    fixed = all(isinstance(axis.extent, int) for axis in fold.axes)
    return (pixels, lanes, fold, tuple(tail)) if fixed else None


def _linear(
    fold: Fold, outer: tuple[str, str], writer: KernelWriter
) -> tuple[Linear, Linear] | None:
    """The windows and their weights: both by lane, the weights the same at every pixel and packed tap by tap."""
    value = fold.values[0]
    if not isinstance(value, Call) or value.fn != "mul" or value.dtype is not f32:
        return None
    names = (*outer, *(axis.var for axis in fold.axes))
    with ExitStack() as inside:
        for axis in fold.axes:
            inside.enter_context(writer.scope(axis.var, axis.extent))
        found = [linear_load(factor, names, writer) for factor in value.args]
    packed: list[Dim] = [PANEL]
    for axis in reversed(fold.axes[1:]):
        packed.insert(0, packed[0] * axis.extent)
    for windows, weights in (found, found[::-1]):
        if windows is None or weights is None or windows.steps[0] != 1:
            continue
        if weights.steps == (1, 0, *packed):
            return windows, weights
    return None


def _dot(point: tuple[int, ...], steps: list[Dim]) -> Dim:
    return sum((a * b for a, b in zip(point, steps, strict=True)), 0)
