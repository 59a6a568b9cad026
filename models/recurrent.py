"""Stacks of LSTM or GRU layers over a batch-first sequence, with a linear head per step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import onnx

from models import attention, layers
from models.builder import Dim, GraphBuilder, Value
from models.feeds import Draw, Feeds, Ids, Normal, draw


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes and written form of one stack.

    states: initial states are "inputs" with final states as outputs, or "zeros" made in the graph.
    lengths: rows end early, by an int32 input. `dynamic` leaves batch and sequence length open.
    """

    cell: Literal["LSTM", "GRU"] = "LSTM"
    depth: int = 2
    features: int = 128
    hidden: int = 256
    classes: int = 40
    bidirectional: bool = True
    states: Literal["inputs", "zeros"] = "zeros"
    lengths: bool = False
    batch: int = 1
    length: int = 100
    dynamic: bool = False
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a narrow bidirectional LSTM stack over 7 steps."""
        return cls(features=6, hidden=8, classes=5, batch=2, length=7)

    @classmethod
    def small_gru(cls) -> Config:
        """Return a narrow forward GRU stack with its states as inputs and outputs."""
        return cls("GRU", 2, 6, 8, 5, bidirectional=False, states="inputs", batch=3, length=5)

    @classmethod
    def full(cls) -> Config:
        """Return a two-layer bidirectional LSTM of 256 units over 100 steps."""
        return cls()

    @classmethod
    def full_gru(cls) -> Config:
        """Return a three-layer forward GRU of 256 units with carried states."""
        return cls("GRU", depth=3, bidirectional=False, states="inputs")

    @property
    def directions(self) -> int:
        """Return 2 for bidirectional layers, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def carried(self) -> tuple[str, ...]:
        """Return the names of the state tensors of one cell."""
        return ("h", "c") if self.cell == "LSTM" else ("h",)


def build(config: Config) -> onnx.ModelProto:
    """Return frames[n, t, features], states if given -> scores[n, t, classes], final states."""
    g = GraphBuilder("recurrent", config.opset)
    batch: Dim = "batch" if config.dynamic else config.batch
    length: Dim = "sequence" if config.dynamic else config.length
    frames = g.input("frames", (batch, length, config.features))
    ends = g.input("lengths", (batch,), "int32") if config.lengths else ""
    outer = (config.depth * config.directions, batch, config.hidden)
    given: list[Value] = []
    if config.states == "inputs":
        given = [g.input(f"{name}0", outer) for name in config.carried]
    count = attention.dim(g, frames, 0) if config.dynamic else config.batch
    x = g.op("Transpose", frames, perm=[1, 0, 2])
    finals: list[tuple[Value, ...]] = []
    size = config.features
    for position in range(config.depth):
        with g.scope(f"rnn.{position}"):
            initial = _initial(g, given, count, position, config)
            x, final = _layer(g, x, size, ends, initial, config)
        finals.append(final)
        size = config.hidden * config.directions
    x = g.op("Transpose", x, perm=[1, 0, 2])
    with g.scope("head"):
        x = layers.linear(g, x, (size, config.classes))
    g.output(g.op("LogSoftmax", x, axis=-1), "scores", (batch, length, config.classes))
    if given:
        for name, parts in zip(config.carried, zip(*finals, strict=True), strict=True):
            g.output(g.op("Concat", *parts, axis=0), f"{name}n", outer)
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return seeded frames, and lengths and initial states where the graph takes them."""
    inputs: dict[str, Draw] = {
        "frames": Normal((config.batch, config.length, config.features)),
    }
    if config.lengths:
        inputs["lengths"] = Ids((config.batch,), config.length + 1, low=1, dtype="int32")
    if config.states == "inputs":
        shape = (config.depth * config.directions, config.batch, config.hidden)
        inputs |= {f"{name}0": Normal(shape, 0.3) for name in config.carried}
    return draw(inputs, seed)


def _initial(
    g: GraphBuilder, given: list[Value], count: attention.Size, position: int, config: Config
) -> list[Value]:
    """Return one layer's initial states: cut from the inputs, or zeros of the right batch."""
    rows = config.directions
    if given:
        first, last = position * rows, (position + 1) * rows
        return [g.op("Slice", s, g.ints(first), g.ints(last), g.ints(0)) for s in given]
    zeros = g.op("Expand", g.constant(0.0), attention.shape(g, rows, count, config.hidden))
    return [zeros] * len(config.carried)


def _layer(
    g: GraphBuilder, x: Value, size: int, ends: Value, initial: list[Value], config: Config
) -> tuple[Value, tuple[Value, ...]]:
    """Return x[t, n, directions·hidden] and final states of one layer over x[t, n, size]."""
    rows, hidden = config.directions, config.hidden
    gates = (4 if config.cell == "LSTM" else 3) * hidden
    extra: dict[str, Any] = {"linear_before_reset": 1} if config.cell == "GRU" else {}
    result, *final = g.multi(
        config.cell,
        x,
        g.normal("weight_ih", (rows, gates, size), size**-0.5),
        g.normal("weight_hh", (rows, gates, hidden), hidden**-0.5),
        g.normal("bias", (rows, 2 * gates), 0.1),
        ends,
        *initial,
        outputs=1 + len(config.carried),
        direction="bidirectional" if config.bidirectional else "forward",
        hidden_size=hidden,
        **extra,
    )
    if rows == 1:
        return g.op("Squeeze", result, g.ints(1)), tuple(final)
    result = g.op("Transpose", result, perm=[0, 2, 1, 3])
    return g.op("Reshape", result, g.ints(0, 0, -1)), tuple(final)
