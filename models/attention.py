"""Attention in the forms that exporters write: place of the scale, kind of mask, Q, K, V."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

from models import layers
from models.builder import GraphBuilder, Value

Size = int | Value


@dataclass(frozen=True, slots=True)
class Form:
    """How one exporter writes scaled dot-product attention.

    scale: "div" or "mul" on the scores, "query" multiplies Q, "both" multiplies Q and the
    transposed K by its square root. mask: "add" float values to the scores, or "where" replaces.
    qkv: three "separate" maps, one map cut by "split", or one map cut by reshape and "gather".
    """

    scale: Literal["div", "mul", "query", "both"] = "div"
    mask: Literal["add", "where"] = "add"
    qkv: Literal["separate", "split", "gather"] = "separate"


def lowest(g: GraphBuilder) -> Value:
    """Return the most negative number of the model's dtype: what exporters add to masked scores."""
    return g.constant(np.finfo(g.real).min)


@dataclass(frozen=True, slots=True)
class Rows:
    """Batch and sequence sizes: integers, or int64 scalars computed in the graph."""

    batch: Size
    length: Size


def rows_of(g: GraphBuilder, x: Value, batch: int | None, length: int | None) -> Rows:
    """Return sizes of x[batch, length, ...]; None reads a size from the shape at run time."""
    return Rows(
        dim(g, x, 0) if batch is None else batch, dim(g, x, 1) if length is None else length
    )


def dim(g: GraphBuilder, x: Value, axis: int) -> Value:
    """Return one size of x as an int64 scalar, by Shape and Gather."""
    return g.op("Gather", g.op("Shape", x), g.constant(axis, "int64"), axis=0)


def shape(g: GraphBuilder, *sizes: Size) -> Value:
    """Return an int64 vector of sizes: a constant where all are known, else a Concat."""
    if all(isinstance(size, int) for size in sizes):
        return g.constant(list(sizes), "int64")
    parts = [
        g.ints(size) if isinstance(size, int) else g.op("Unsqueeze", size, g.ints(0))
        for size in sizes
    ]
    return g.op("Concat", *parts, axis=0)


def split_heads(g: GraphBuilder, x: Value, rows: Rows, heads: int, width: int) -> Value:
    """x[b, s, heads·width] to [b, heads, s, width]."""
    x = g.op("Reshape", x, shape(g, rows.batch, rows.length, heads, width))
    return g.op("Transpose", x, perm=[0, 2, 1, 3])


def join_heads(g: GraphBuilder, x: Value, rows: Rows, size: int) -> Value:
    """x[b, heads, s, width] to [b, s, size]."""
    x = g.op("Transpose", x, perm=[0, 2, 1, 3])
    return g.op("Reshape", x, shape(g, rows.batch, rows.length, size))


def project(
    g: GraphBuilder, x: Value, rows: Rows, size: int, heads: int, form: Form
) -> tuple[Value, Value, Value]:
    """Return Q, K and V [b, heads, s, width] of x[b, s, size] with seeded weights."""
    width = size // heads
    if form.qkv == "separate":
        parts: list[Value] = []
        for label in ("query", "key", "value"):
            with g.scope(label):
                parts.append(split_heads(g, layers.linear(g, x, (size, size)), rows, heads, width))
        return parts[0], parts[1], parts[2]
    with g.scope("qkv"):
        fused = layers.linear(g, x, (size, 3 * size))
    if form.qkv == "split":
        cut = g.multi("Split", fused, g.ints(size, size, size), outputs=3, axis=-1)
        query, key, value = (split_heads(g, part, rows, heads, width) for part in cut)
        return query, key, value
    fused = g.op("Reshape", fused, shape(g, rows.batch, rows.length, 3, heads, width))
    fused = g.op("Transpose", fused, perm=[2, 0, 3, 1, 4])
    query, key, value = (
        g.op("Gather", fused, g.constant(index, "int64"), axis=0) for index in range(3)
    )
    return query, key, value


def mix(
    g: GraphBuilder, query: Value, key: Value, value: Value, width: int, form: Form, mask: Value
) -> Value:
    """Return softmax(scale · QKᵀ, masked) V for [b, heads, s, width] operands.

    `mask` is "" for none, float values to add, or for the "where" form true where a key counts.
    """
    key = g.op("Transpose", key, perm=[0, 1, 3, 2])
    if form.scale == "query":
        query = g.op("Mul", query, g.constant(1 / sqrt(width)))
    elif form.scale == "both":
        query = g.op("Mul", query, g.constant(width**-0.25))
        key = g.op("Mul", key, g.constant(width**-0.25))
    scores = g.op("MatMul", query, key)
    if form.scale == "div":
        scores = g.op("Div", scores, g.constant(sqrt(width)))
    elif form.scale == "mul":
        scores = g.op("Mul", scores, g.constant(1 / sqrt(width)))
    if mask and form.mask == "add":
        scores = g.op("Add", scores, mask)
    elif mask:
        scores = g.op("Where", mask, scores, lowest(g))
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), value)


def padding_mask(g: GraphBuilder, mask: Value, form: Form) -> Value:
    """Return the [b, 1, 1, s] mask for `mix` from an int64 mask[b, s] of ones and zeros."""
    spread = g.op("Unsqueeze", g.op("Unsqueeze", mask, g.ints(1)), g.ints(2))
    if form.mask == "where":
        return g.cast(spread, "bool")
    kept = g.cast(spread, g.real)
    return g.op("Mul", g.op("Sub", g.constant(1.0), kept), lowest(g))
