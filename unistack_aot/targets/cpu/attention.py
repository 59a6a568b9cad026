"""Prints a block of attention rows as a call of ua/attention.h."""

from __future__ import annotations

from collections.abc import Mapping

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, linear_split, substitute
from unistack_aot.codegen.ctree import Block, CNode, Directive, Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.mcir.nodes import Attend, View


def attention_call(stmt: Attend, writer: KernelWriter) -> tuple[CNode, ...]:
    """`ua::attention(...)` with the score as a function over a run of keys, the store over a run of values."""
    row, key, deep, value = (
        stmt.rows.var,
        stmt.keys.var,
        stmt.depth.var,
        stmt.values.var,
    )
    q, q_row = _pointer(stmt.q, {row: 0, deep: 0}, row, writer)
    k, k_row = _pointer(stmt.k, {key: 0, deep: 0}, key, writer)
    v, v_row = _pointer(stmt.v, {key: 0, value: 0}, key, writer)
    numbers = [q_row, k_row, v_row]
    fields = [
        q,
        k,
        v,
        *numbers,
        _dim(stmt.depth.extent, writer),
        _dim(stmt.values.extent, writer),
        str(stmt.blocks[1]),
    ]
    first, last = stmt.rows.first, stmt.rows.first + stmt.rows.extent
    keys = _dim(stmt.keys.extent, writer)
    return (
        Block(
            "",
            (
                Line(f"const ua::Attention heads{{{', '.join(fields)}}};"),
                _score(stmt, writer),
                _done(stmt, writer),
                Line(
                    f"ua::attention(heads, {_dim(first, writer)}, {_dim(last, writer)}, {keys}, score, done);"
                ),
            ),
        ),
    )


def _dim(value: Dim, writer: KernelWriter) -> str:
    return writer.printer.dim(value)


def _pointer(
    view: View, zero: Mapping[str, Dim], var: str, writer: KernelWriter
) -> tuple[str, str]:
    """The C pointer at the first element, and the distance of rows along `var`."""
    offset = writer.printer.offset(view.buffer, view.index)
    parts = linear_split(offset, var)
    if parts is None:
        raise IRError(f"{view.buffer} is not linear in {var}")
    base = substitute(offset, zero)
    return f"{identifier(view.buffer)} + {_dim(base, writer)}", _dim(parts[0], writer)


def _done(stmt: Attend, writer: KernelWriter) -> Block:
    """A function that stores a run of one row's values."""
    row, value, out = identifier(stmt.rows.var), stmt.values.var, identifier(stmt.out)
    ranges = writer.printer.ranges
    ranges[stmt.rows.var], ranges[value] = (0, None), (0, None)
    inner = (
        Line(f"const int64_t {identifier(value)} = first_value + j;"),
        Line(f"const float {out} = o[j];"),
        *writer.body(stmt.body),
    )
    del ranges[stmt.rows.var], ranges[value]
    loop = Block("for (int j = 0; j < n; ++j)", inner)
    return Block(
        f"const auto done = [&](int64_t {row}, int first_value, int n, const float* o)",
        (Directive(writer.dialect.simd), loop),
        ";",
    )


def _score(stmt: Attend, writer: KernelWriter) -> Block:
    """A function that turns raw products of one row with a run of keys into scores, in place."""
    row, key, dot = identifier(stmt.rows.var), identifier(stmt.keys.var), identifier(stmt.dot)
    ranges = writer.printer.ranges
    ranges[stmt.rows.var], ranges[stmt.keys.var] = (0, None), (0, None)
    lines, text = writer.value(stmt.score)
    del ranges[stmt.rows.var], ranges[stmt.keys.var]
    inner = (
        Line(f"const int64_t {key} = first_key + j;"),
        Line(f"const float {dot} = s[j];"),
        *lines,
        Line(f"s[j] = {text};"),
    )
    loop = Block("for (int j = 0; j < n; ++j)", inner)
    return Block(
        f"const auto score = [&](int64_t {row}, int64_t first_key, int n, float* s)",
        (Directive(writer.dialect.simd), loop),
        ";",
    )
