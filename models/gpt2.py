"""GPT-2 (Radford et al. 2019): a pre-norm decoder whose causal mask is built inside the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx

from models import attention, layers
from models.attention import Form, Rows
from models.builder import Dim, GraphBuilder, Value
from models.feeds import Feeds, Ids, draw
from models.layers import Norm


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes and written form of one decoder; `dynamic` leaves batch and length open.

    causal: "constant" slices a stored triangle, "trilu" fills and cuts one of the right size, and
    "range" compares row with column numbers. tied: the head is the transposed embedding.
    """

    depth: int = 12
    hidden: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024
    batch: int = 1
    length: int = 64
    dynamic: bool = True
    tied: bool = True
    causal: Literal["constant", "trilu", "range"] = "constant"
    norm: Norm = "op"
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a two-layer decoder."""
        return cls(2, 32, 4, 103, 32, batch=2, length=9)

    @classmethod
    def full(cls) -> Config:
        """Return GPT-2 small (124 M weights), batch and length open."""
        return cls()


def build(config: Config) -> onnx.ModelProto:
    """Return input_ids[b, s] int64 -> logits[b, s, vocabulary] float32."""
    g = GraphBuilder("gpt2", config.opset)
    batch: Dim = "batch" if config.dynamic else config.batch
    length: Dim = "sequence" if config.dynamic else config.length
    ids = g.input("input_ids", (batch, length), "int64")
    known = (None, None) if config.dynamic else (config.batch, config.length)
    rows = attention.rows_of(g, ids, *known)
    words = g.normal("wte", (config.vocabulary, config.hidden), 0.04)
    places = g.normal("wpe", (config.positions, config.hidden), 0.02)
    numbers = g.op("Unsqueeze", _count(g, rows.length), g.ints(0))
    x = g.op("Add", g.op("Gather", words, ids), g.op("Gather", places, numbers))
    mask = _causal_mask(g, rows, config)
    for position in range(config.depth):
        with g.scope(f"h.{position}"):
            x = _layer(g, x, rows, mask, config)
    with g.scope("ln_f"):
        x = layers.layer_norm(g, x, config.hidden, config.norm)
    with g.scope("lm_head"):
        if config.tied:
            logits = g.op("MatMul", x, g.op("Transpose", words, perm=[1, 0]))
        else:
            logits = layers.linear(g, x, (config.hidden, config.vocabulary), bias=False)
    g.output(logits, "logits", (batch, length, config.vocabulary))
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return seeded token ids."""
    return draw({"input_ids": Ids((config.batch, config.length), config.vocabulary)}, seed)


def _count(g: GraphBuilder, size: attention.Size) -> Value:
    """Return int64 [0, 1, ... size - 1]."""
    if isinstance(size, int):
        return g.constant(list(range(size)), "int64")
    return g.op("Range", g.constant(0, "int64"), size, g.constant(1, "int64"))


def _causal_mask(g: GraphBuilder, rows: Rows, config: Config) -> Value:
    """Return the mask for `attention.mix`: boolean [1, 1, s, s], or float [s, s] for "trilu"."""
    if config.causal == "trilu":
        filled = g.op("Expand", g.constant(-np.inf), attention.shape(g, rows.length, rows.length))
        return g.op("Trilu", filled, g.constant(1, "int64"), upper=1)
    if config.causal == "range":
        numbers = _count(g, rows.length)
        row, column = (g.op("Unsqueeze", numbers, g.ints(axis)) for axis in (1, 0))
        kept = g.op("LessOrEqual", column, row)
        return g.op("Unsqueeze", kept, g.ints(0, 1))
    triangle = np.tril(np.ones((config.positions, config.positions), bool))[None, None]
    end = attention.shape(g, rows.length)
    kept = g.weight("bias", triangle)
    for axis in (2, 3):
        kept = g.op("Slice", kept, g.ints(0), end, g.ints(axis), g.ints(1))
    return kept


def _layer(g: GraphBuilder, x: Value, rows: Rows, mask: Value, config: Config) -> Value:
    """One decoder layer: x + attention(norm(x)), then x + feed_forward(norm(x))."""
    size, width = config.hidden, config.hidden // config.heads
    form = Form("div", "add" if config.causal == "trilu" else "where", "split")
    with g.scope("ln_1"):
        y = layers.layer_norm(g, x, size, config.norm)
    with g.scope("attn"):
        fused = _flat_linear(g, y, rows, (size, 3 * size), "c_attn")
        parts = g.multi("Split", fused, g.ints(size, size, size), outputs=3, axis=2)
        query, key, value = (
            attention.split_heads(g, part, rows, config.heads, width) for part in parts
        )
        y = attention.mix(g, query, key, value, width, form, mask)
        y = attention.join_heads(g, y, rows, size)
        x = g.op("Add", _flat_linear(g, y, rows, (size, size), "c_proj"), x)
    with g.scope("ln_2"):
        y = layers.layer_norm(g, x, size, config.norm)
    with g.scope("mlp"):
        y = layers.gelu_tanh(g, _flat_linear(g, y, rows, (size, 4 * size), "c_fc"))
        return g.op("Add", x, _flat_linear(g, y, rows, (4 * size, size), "c_proj"))


def _flat_linear(
    g: GraphBuilder, x: Value, rows: Rows, sizes: tuple[int, int], label: str
) -> Value:
    """Map the last axis as GPT-2's Conv1D does: flatten to two axes, Gemm, restore."""
    with g.scope(label):
        flat = g.op("Reshape", x, g.ints(-1, sizes[0]))
        weight = g.normal("weight", sizes, sizes[0] ** -0.5)
        flat = g.op("Gemm", flat, weight, g.near("bias", sizes[1], 0.0), alpha=1.0, beta=1.0)
        return g.op("Reshape", flat, attention.shape(g, rows.batch, rows.length, sizes[1]))
