"""Llama-style decoders with a key and value cache: one graph for prompt and steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from models import attention, layers
from models.attention import Form, Rows
from models.builder import GraphBuilder, Value
from models.feeds import Feeds, Ids, Normal, draw


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one decoder; batch, new and past length are always open in the graph.

    `batch`, `length` and `past` are what the feeds use: past 0 is a prompt, length 1 a step.
    """

    depth: int = 30
    hidden: int = 576
    heads: int = 9
    shared: int = 3
    width: int = 64
    feed_forward: int = 1536
    vocabulary: int = 49152
    base: float = 10000.0
    batch: int = 1
    length: int = 1
    past: int = 64
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a two-layer decoder, two query heads per key head."""
        return cls(2, 32, 4, 2, 8, 48, 107, batch=2, length=5, past=7)

    @classmethod
    def full(cls) -> Config:
        """Return a decoder with the sizes of SmolLM-135M, for one step after 64 tokens."""
        return cls()


Cache = tuple[Value, Value]


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers share: sizes, rotation tables and the mask [b, 1, s, past + s]."""

    rows: Rows
    cosine: Value
    sine: Value
    mask: Value


def build(config: Config) -> onnx.ModelProto:
    """Return input_ids, attention_mask, position_ids, past_key_values.* -> logits, present.*"""
    g = GraphBuilder("llama", config.opset)
    ids = g.input("input_ids", ("batch", "sequence"), "int64")
    kept = g.input("attention_mask", ("batch", "past+sequence"), "int64")
    places = g.input("position_ids", ("batch", "sequence"), "int64")
    cache_shape = ("batch", config.shared, "past", config.width)
    past = [
        (
            g.input(f"past_key_values.{position}.key", cache_shape),
            g.input(f"past_key_values.{position}.value", cache_shape),
        )
        for position in range(config.depth)
    ]
    words = g.normal("model.embed_tokens.weight", (config.vocabulary, config.hidden), 0.05)
    rows = attention.rows_of(g, ids, None, None)
    cosine, sine = _rotation(g, places, config)
    step = _Step(rows, cosine, sine, _mask(g, kept, rows, past[0][0]))
    x = g.op("Gather", words, ids)
    present: list[Cache] = []
    for position in range(config.depth):
        with g.scope(f"model/layers.{position}"):
            x, updated = _layer(g, x, step, past[position], config)
        present.append(updated)
    with g.scope("model/norm"):
        x = layers.rms_norm(g, x, config.hidden)
    logits = g.op("MatMul", x, g.op("Transpose", words, perm=[1, 0]))
    g.output(logits, "logits", ("batch", "sequence", config.vocabulary))
    grown = ("batch", config.shared, "past+sequence", config.width)
    for position, (key, value) in enumerate(present):
        g.output(key, f"present.{position}.key", grown)
        g.output(value, f"present.{position}.value", grown)
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return one call's inputs; later rows begin with padding where there is a past to hold it."""
    cache = (config.batch, config.shared, config.past, config.width)
    padding = np.minimum(np.arange(config.batch), config.past)[:, None]
    columns = np.arange(config.past + config.length)[None, :]
    numbers = np.maximum(columns - padding, 0)
    arrays = draw({"input_ids": Ids((config.batch, config.length), config.vocabulary)}, seed)
    arrays["attention_mask"] = (columns >= padding).astype(np.int64)
    arrays["position_ids"] = numbers[:, config.past :].astype(np.int64)
    for position in range(config.depth):
        names = (f"past_key_values.{position}.key", f"past_key_values.{position}.value")
        arrays |= draw({name: Normal(cache) for name in names}, seed + position + 1)
    return arrays


def _rotation(g: GraphBuilder, places: Value, config: Config) -> tuple[Value, Value]:
    """Return cosine and sine [b, 1, s, width] of the rotary position angles."""
    exponents = np.arange(0, config.width, 2, dtype=np.float64) / config.width
    rates = g.constant((config.base**-exponents)[None, None, :])
    spread = g.cast(g.op("Unsqueeze", places, g.ints(2)), g.real)
    angles = g.op("MatMul", spread, rates)
    angles = g.op("Concat", angles, angles, axis=-1)
    cosine, sine = (g.op("Unsqueeze", g.op(f, angles), g.ints(1)) for f in ("Cos", "Sin"))
    return cosine, sine


def _mask(g: GraphBuilder, kept: Value, rows: Rows, past_key: Value) -> Value:
    """Return 0 where a query may see a key and the lowest float elsewhere, [b, 1, s, past + s]."""
    assert isinstance(rows.length, str), "sizes are read at run time"
    zero, one = g.constant(0, "int64"), g.constant(1, "int64")
    past = attention.dim(g, past_key, 2)
    total = g.op("Add", past, rows.length)
    columns = g.op("Unsqueeze", g.op("Range", zero, total, one), g.ints(0))
    numbers = g.op("Unsqueeze", g.op("Range", past, total, one), g.ints(1))
    causal = g.op("Unsqueeze", g.op("LessOrEqual", columns, numbers), g.ints(0, 1))
    real = g.op("Unsqueeze", g.cast(kept, "bool"), g.ints(1, 2))
    seen = g.op("And", causal, real)
    return g.op("Where", seen, g.constant(0.0), attention.lowest(g))


def _layer(
    g: GraphBuilder, x: Value, step: _Step, past: Cache, config: Config
) -> tuple[Value, Cache]:
    """One decoder layer; returns its result and the cache grown by the new positions."""
    with g.scope("input_layernorm"):
        y = layers.rms_norm(g, x, config.hidden)
    with g.scope("self_attn"):
        y, present = _attend(g, y, step, past, config)
        x = g.op("Add", x, y)
    with g.scope("post_attention_layernorm"):
        y = layers.rms_norm(g, x, config.hidden)
    with g.scope("mlp"):
        wide, narrow = (config.hidden, config.feed_forward), (config.feed_forward, config.hidden)
        with g.scope("gate_proj"):
            gate = layers.activate(g, layers.linear(g, y, wide, bias=False), "silu")
        with g.scope("up_proj"):
            y = g.op("Mul", gate, layers.linear(g, y, wide, bias=False))
        with g.scope("down_proj"):
            y = layers.linear(g, y, narrow, bias=False)
    return g.op("Add", x, y), present


def _attend(
    g: GraphBuilder, x: Value, step: _Step, past: Cache, config: Config
) -> tuple[Value, Cache]:
    """Grouped-query attention over past and new keys."""
    parts: list[Value] = []
    for label, heads in (
        ("q_proj", config.heads),
        ("k_proj", config.shared),
        ("v_proj", config.shared),
    ):
        with g.scope(label):
            y = layers.linear(g, x, (config.hidden, heads * config.width), bias=False)
            parts.append(attention.split_heads(g, y, step.rows, heads, config.width))
    query, key, value = parts
    query, key = (_rotate(g, part, step, config.width) for part in (query, key))
    key = g.op("Concat", past[0], key, axis=2)
    value = g.op("Concat", past[1], value, axis=2)
    keys, values = (_repeat(g, part, step.rows, config) for part in (key, value))
    mixed = attention.mix(g, query, keys, values, config.width, Form("mul", "add"), step.mask)
    mixed = attention.join_heads(g, mixed, step.rows, config.heads * config.width)
    with g.scope("o_proj"):
        sizes = (config.heads * config.width, config.hidden)
        return layers.linear(g, mixed, sizes, bias=False), (key, value)


def _rotate(g: GraphBuilder, x: Value, step: _Step, width: int) -> Value:
    """x·cos + (second half negated, first half)·sin over the last axis."""
    half, end = width // 2, np.iinfo(np.int64).max
    first = g.op("Slice", x, g.ints(0), g.ints(half), g.ints(3), g.ints(1))
    second = g.op("Slice", x, g.ints(half), g.ints(int(end)), g.ints(3), g.ints(1))
    turned = g.op("Concat", g.op("Neg", second), first, axis=-1)
    return g.op("Add", g.op("Mul", x, step.cosine), g.op("Mul", turned, step.sine))


def _repeat(g: GraphBuilder, x: Value, rows: Rows, config: Config) -> Value:
    """Repeat each of x[b, shared, t, width]'s heads for its group of queries."""
    group, total = config.heads // config.shared, attention.dim(g, x, 2)
    x = g.op("Unsqueeze", x, g.ints(2))
    wide = attention.shape(g, rows.batch, config.shared, group, total, config.width)
    x = g.op("Expand", x, wide)
    flat = attention.shape(g, rows.batch, config.heads, total, config.width)
    return g.op("Reshape", x, flat)
