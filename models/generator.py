"""A gated recurrent text generator written with Loop or Scan: control flow as exporters keep it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import onnx

from models import layers
from models.builder import Dim, GraphBuilder, Value
from models.feeds import Draw, Feeds, Fixed, Ids, Normal, draw

END = 0  # the token at which every row has to arrive for the loop to stop early


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes and form of one generator.

    form: "loop" feeds each chosen token back until all rows end or `steps` are done; "scan" follows
    `steps` given tokens. The batch is open; `batch` and `steps` are what the feeds use.
    """

    hidden: int = 256
    vocabulary: int = 5000
    form: Literal["loop", "scan"] = "loop"
    batch: int = 1
    steps: int = 32
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a narrow generator of at most 6 tokens."""
        return cls(12, 40, batch=2, steps=6)

    @classmethod
    def full(cls) -> Config:
        """Return a generator of 256 units over 5,000 tokens."""
        return cls()


@dataclass(frozen=True, slots=True)
class _Cell:
    """The weights of the recurrent cell, held outside the body."""

    words: Value
    taken: Value
    kept: Value
    head: Value


def build(config: Config) -> onnx.ModelProto:
    """Return token[n], state[n, hidden], limit -> tokens[steps, n], state; or the Scan form.

    The Scan form is tokens[n, steps], state[n, hidden] -> scores[n, steps, vocabulary], state.
    """
    g = GraphBuilder("generator", config.opset)
    size = config.hidden
    cell = _Cell(
        g.normal("words", (config.vocabulary, size), 1.0),
        g.normal("taken", (size, 2 * size), 1.5 * size**-0.5),
        g.normal("kept", (size, 2 * size), 1.5 * size**-0.5),
        g.normal("head", (size, config.vocabulary), size**-0.5),
    )
    if config.form == "loop":
        _loop(g, cell, config)
    else:
        _scan(g, cell, config)
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return seeded start tokens and states, and the step limit for the Loop form."""
    shape = (config.batch,) if config.form == "loop" else (config.batch, config.steps)
    inputs: dict[str, Draw] = {
        "tokens": Ids(shape, config.vocabulary, low=1),
        "state": Normal((config.batch, config.hidden), 0.5),
    }
    if config.form == "loop":
        inputs["limit"] = Fixed(config.steps)
    return draw(inputs, seed)


def _loop(g: GraphBuilder, cell: _Cell, config: Config) -> None:
    batch: Dim = "batch"
    start = g.input("tokens", (batch,), "int64")
    state = g.input("state", (batch, config.hidden))
    limit = g.input("limit", (), "int64")
    body = g.body("step")
    body.input("index", (), "int64")
    body.input("running", (), "bool")
    token = body.input("token", (batch,), "int64")
    before = body.input("before", (batch, config.hidden))
    after = _advance(body, cell, token, before)
    scores = body.op("MatMul", after, cell.head)
    chosen = body.op("ArgMax", scores, axis=-1, keepdims=0)
    ended = body.cast(body.op("Equal", chosen, body.constant(END, "int64")), "int32")
    going = body.op("Not", body.cast(body.op("ReduceMin", ended, keepdims=0), "bool"))
    body.output(going, "going", (), "bool")
    body.output(chosen, "chosen", (batch,), "int64")
    body.output(after, "after", (batch, config.hidden))
    body.output(body.op("Identity", chosen), "written", (batch,), "int64")
    _, final, written = g.multi(
        "Loop", limit, g.constant(True, "bool"), start, state, outputs=3, body=body.build().graph
    )
    g.output(written, "written_tokens", ("steps", batch), "int64")
    g.output(final, "final_state", (batch, config.hidden))


def _scan(g: GraphBuilder, cell: _Cell, config: Config) -> None:
    tokens = g.input("tokens", ("batch", "steps"), "int64")
    state = g.input("state", ("batch", config.hidden))
    body = g.body("step")
    before = body.input("before", ("batch", config.hidden))
    token = body.input("token", ("batch",), "int64")
    after = _advance(body, cell, token, before)
    body.output(after, "after", ("batch", config.hidden))
    body.output(body.op("MatMul", after, cell.head), "row", ("batch", config.vocabulary))
    final, scores = g.multi(
        "Scan",
        state,
        tokens,
        outputs=2,
        body=body.build().graph,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
    )
    g.output(scores, "scores", ("batch", "steps", config.vocabulary))
    g.output(final, "final_state", ("batch", config.hidden))


def _advance(g: GraphBuilder, cell: _Cell, token: Value, before: Value) -> Value:
    """Return the next state: a gate mixes the old one with a candidate from token and state."""
    word = g.op("Gather", cell.words, token, axis=0)
    both = g.op("Add", g.op("MatMul", word, cell.taken), g.op("MatMul", before, cell.kept))
    gate, candidate = g.multi("Split", both, outputs=2, axis=-1, **layers.equal_parts(g, 2))
    gate = g.op("Sigmoid", gate)
    change = g.op("Sub", g.op("Tanh", candidate), before)
    return g.op("Add", before, g.op("Mul", gate, change))
