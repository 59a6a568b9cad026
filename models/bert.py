"""BERT encoders (Devlin et al. 2018) with a pooler, in the forms that different exporters write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import onnx

from models import attention, layers
from models.attention import Form
from models.builder import Dim, GraphBuilder, Real, Value
from models.feeds import Feeds, Ids, Mask, draw
from models.layers import Norm

FORM = Form("div", "add", "separate")


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes and written form of one encoder; `dynamic` leaves batch and length open."""

    depth: int = 12
    hidden: int = 768
    heads: int = 12
    feed_forward: int = 3072
    vocabulary: int = 30522
    positions: int = 512
    batch: int = 1
    length: int = 128
    dynamic: bool = False
    norm: Norm = "op"
    gelu: Literal["erf", "op"] = "erf"
    form: Form = FORM
    real: Real = "float32"
    int8_linear: bool = False
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a two-layer encoder over 12 tokens."""
        return cls(2, 32, 4, 64, 101, 24, batch=2, length=12)

    @classmethod
    def full(cls) -> Config:
        """Return BERT-base at batch 1 and 128 tokens."""
        return cls()


def build(config: Config) -> onnx.ModelProto:
    """Return input_ids, attention_mask, token_type_ids -> last_hidden_state, pooler_output."""
    g = GraphBuilder("bert", config.opset, real=config.real, int8_linear=config.int8_linear)
    batch: Dim = "batch" if config.dynamic else config.batch
    length: Dim = "sequence" if config.dynamic else config.length
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, kinds = (g.input(name, (batch, length), "int64") for name in names)
    known = (None, None) if config.dynamic else (config.batch, config.length)
    rows = attention.rows_of(g, ids, *known)
    with g.scope("embeddings"):
        x = _embed(g, ids, kinds, rows, config)
    masked = attention.padding_mask(g, mask, config.form)
    for position in range(config.depth):
        with g.scope(f"encoder/layer.{position}"):
            x = _layer(g, x, rows, masked, config)
    with g.scope("pooler"):
        first = g.op("Gather", x, g.constant(0, "int64"), axis=1)
        pooled = g.op("Tanh", layers.gemm(g, first, (config.hidden, config.hidden)))
    g.output(x, "last_hidden_state", (batch, length, config.hidden), config.real)
    g.output(pooled, "pooler_output", (batch, config.hidden), config.real)
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return seeded token ids, a padding mask with a different length per row, and segment ids."""
    shape = (config.batch, config.length)
    inputs = {
        "input_ids": Ids(shape, config.vocabulary),
        "attention_mask": Mask(shape),
        "token_type_ids": Ids(shape, 2),
    }
    return draw(inputs, seed)


def _embed(
    g: GraphBuilder, ids: Value, kinds: Value, rows: attention.Rows, config: Config
) -> Value:
    """Sum of word, segment and position embeddings, normalised."""
    words = g.normal("word_embeddings", (config.vocabulary, config.hidden), 0.5)
    segments = g.normal("token_type_embeddings", (2, config.hidden), 0.5)
    places = g.normal("position_embeddings", (config.positions, config.hidden), 0.5)
    numbers = g.constant([list(range(config.positions))], "int64")
    if config.dynamic:
        end = attention.shape(g, rows.length)
        numbers = g.op("Slice", numbers, g.ints(0), end, g.ints(1), g.ints(1))
    else:
        numbers = g.constant([list(range(config.length))], "int64")
    x = g.op("Add", g.op("Gather", words, ids, axis=0), g.op("Gather", segments, kinds, axis=0))
    x = g.op("Add", x, g.op("Gather", places, numbers, axis=0))
    with g.scope("norm"):
        return layers.layer_norm(g, x, config.hidden, config.norm, 1e-12)


def _layer(g: GraphBuilder, x: Value, rows: attention.Rows, mask: Value, config: Config) -> Value:
    """One encoder layer: attention and feed-forward, each added to its input and normalised."""
    size, heads = config.hidden, config.heads
    with g.scope("attention"):
        query, key, value = attention.project(g, x, rows, size, heads, config.form)
        mixed = attention.mix(g, query, key, value, size // heads, config.form, mask)
        mixed = attention.join_heads(g, mixed, rows, size)
        with g.scope("output"):
            y = g.op("Add", layers.linear(g, mixed, (size, size)), x)
            x = layers.layer_norm(g, y, size, config.norm, 1e-12)
    with g.scope("intermediate"):
        y = layers.linear(g, x, (size, config.feed_forward))
        y = g.op("Gelu", y) if config.gelu == "op" else layers.gelu_erf(g, y)
    with g.scope("output"):
        y = g.op("Add", layers.linear(g, y, (config.feed_forward, size)), x)
        return layers.layer_norm(g, y, size, config.norm, 1e-12)
