"""The ONNX layers RNN, GRU and LSTM around recurrences. Not here: the recurrences themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.base.dtypes import i64
from unistack_aot.base.symbolic import Dim
from unistack_aot.ops.contract import contract
from unistack_aot.ops.convert import converted
from unistack_aot.ops.core import constant, item
from unistack_aot.ops.gather import GatherNd
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.pointwise import Add, Sub
from unistack_aot.ops.positions import Progression, ReverseSequence
from unistack_aot.ops.recurrent import ACTIVATIONS, Activation, Gru, Lstm, Rnn
from unistack_aot.ops.reindex import expand, reshape, transpose
from unistack_aot.ops.slices import Slice, concat, slice_axis

Run = Callable[["Direction", Node], tuple[Node, ...]]


@dataclass(frozen=True)
class Layer:
    """The operands of one ONNX recurrent node, time first, and its directions."""

    call: OnnxCall
    x: Node
    lengths: Node | None
    gates: int
    units: int
    directions: tuple[bool, ...]  # whether each runs backwards

    @property
    def rows(self) -> Dim:
        """The batch extent."""
        return self.x.tensor.shape[1]

    def part(self, k: int, direction: int) -> Node | None:
        """Operand `k` of one direction, without its direction axis."""
        whole = self.call.optional(k)
        if whole is None:
            return None
        one = slice_axis(whole, 0, direction, 1)
        return reshape(one, one.tensor.shape[1:])

    def state(self, k: int, direction: int) -> Node:
        """The initial state in operand `k`; zeros if omitted."""
        whole = self.call.optional(k)
        if whole is None:
            return expand(constant(0, self.x), (self.rows, self.units))
        if self.call.attr("layout", 0):
            whole = transpose(whole, (1, 0, 2))
        one = slice_axis(whole, 0, direction, 1)
        return reshape(one, one.tensor.shape[1:])


@dataclass(frozen=True)
class Direction:
    """What one direction of a layer computes with."""

    layer: Layer
    number: int
    weights: Node
    bias: Node | None  # of the inputs, then of the recurrence
    activations: tuple[Activation, ...]

    @property
    def clip(self) -> float:
        """The limit of gate inputs; 0 if there is none."""
        return float(self.layer.call.attr("clip", 0.0))

    @property
    def state(self) -> Node:
        """The initial hidden state."""
        return self.layer.state(5, self.number)

    @property
    def lengths(self) -> tuple[Node, ...]:
        """The row lengths, if given."""
        return () if self.layer.lengths is None else (self.layer.lengths,)

    def biases(self, first: int, stop: int) -> tuple[Node, Node] | None:
        """The input and the recurrent bias of gates `first` to `stop`."""
        if self.bias is None:
            return None
        units, gates = self.layer.units, self.layer.gates
        size = (stop - first) * units
        mine = slice_axis(self.bias, 0, first * units, size)
        return mine, slice_axis(self.bias, 0, (gates + first) * units, size)

    def whole_bias(self, apart: int = 0) -> Node | None:
        """Both biases added; for the last `apart` gates only that of the inputs."""
        gates = self.layer.gates
        joined = self.biases(0, gates - apart)
        if joined is None:
            return None
        parts = [Node(Add(), joined)]
        last = self.biases(gates - apart, gates) if apart else None
        return concat([*parts, last[0]], 0) if last else parts[0]


def _layer(call: OnnxCall, gates: int) -> Layer:
    x = call.arg(0)
    if call.attr("layout", 0):
        x = transpose(x, (1, 0, 2))
    weights = call.arg(2).tensor.shape
    units = weights[-1]
    if not isinstance(units, int) or call.attr("hidden_size", units) != units:
        raise call.refuse(f"with {call.arg(2).tensor} for its hidden size", "fix the model")
    word = call.attr("direction", "forward")
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(word)
    if directions is None or weights[0] != len(directions):
        raise call.refuse(f"with direction {word} and {weights[0]} directions", "fix the model")
    return Layer(call, x, call.optional(4), gates, units, directions)


def _activations(call: OnnxCall, defaults: Sequence[str], count: int) -> list[Activation]:
    """The activations of all directions; parameters are taken in order by those that have some."""
    names = list(call.attr("activations", tuple(defaults) * count))
    alphas, betas = list(call.attr("activation_alpha", ())), list(call.attr("activation_beta", ()))
    known = {name.lower(): name for name in ACTIVATIONS}
    found: list[Activation] = []
    for name in names:
        exact = known.get(name.lower())
        if exact is None:
            raise call.refuse(f"with activation {name}", f"use one of {', '.join(ACTIVATIONS)}")
        takes_alpha, takes_beta, alpha, beta = ACTIVATIONS[exact]
        alpha = alphas.pop(0) if takes_alpha and alphas else alpha
        beta = betas.pop(0) if takes_beta and betas else beta
        found.append(Activation(exact, float(alpha), float(beta)))
    if len(found) != len(defaults) * count:
        raise call.refuse(f"with {len(found)} activations", f"give {len(defaults)} per direction")
    return found


def _import(
    call: OnnxCall, gates: int, defaults: Sequence[str], apart: int, run: Run
) -> list[Node]:
    """Every direction, and the results as ONNX lays them out: Y, Y_h and for an LSTM Y_c."""
    layer = _layer(call, gates)
    functions = _activations(call, defaults, len(layer.directions))
    found: list[tuple[Node, ...]] = []
    for number, backwards in enumerate(layer.directions):
        chosen = tuple(functions[number * len(defaults) : (number + 1) * len(defaults)])
        weights = layer.part(2, number)
        assert weights is not None
        direction = Direction(layer, number, weights, layer.part(3, number), chosen)
        x = _reversed(layer.x, layer.lengths) if backwards else layer.x
        states = run(direction, _projected(direction, x, apart))
        lasts = tuple(_last(s, layer.lengths) for s in states)
        first = _reversed(states[0], layer.lengths) if backwards else states[0]
        found.append((first, *lasts))
    time, rows, units = found[0][0].tensor.shape
    whole = concat([reshape(f[0], (time, 1, rows, units)) for f in found], 1)
    finals = [
        concat([reshape(f[k], (1, rows, units)) for f in found], 0) for k in range(1, len(found[0]))
    ]
    if call.attr("layout", 0):
        whole = transpose(whole, (2, 0, 1, 3))
        finals = [transpose(final, (1, 0, 2)) for final in finals]
    return [whole, *finals]


def _projected(direction: Direction, x: Node, apart: int) -> Node:
    """The inputs of all steps times the input weights: one contraction."""
    inputs = direction.layer.part(1, direction.number)
    assert inputs is not None
    product = contract(x, inputs, "tbi", "gi", "tbg")
    bias = direction.whole_bias(apart)
    return product if bias is None else Node(Add(), (product, bias))


def _reversed(x: Node, lengths: Node | None) -> Node:
    """The time axis backwards, per row only up to its length."""
    if lengths is not None:
        return Node(ReverseSequence(0, 1), (x, lengths))
    shape = x.tensor.shape
    return Node(Slice((shape[0] - 1, 0, 0), (-1, 1, 1), shape), (x,))


def _last(states: Node, lengths: Node | None) -> Node:
    """The state of the last step of each row."""
    time, rows, units = states.tensor.shape
    if lengths is None:
        return reshape(slice_axis(states, 0, time - 1, 1), (rows, units))
    ends = Node(Sub(), (converted(lengths, i64), constant(np.int64(1))))
    places = [reshape(ends, (rows, 1)), reshape(Node(Progression(0, 1, rows)), (rows, 1))]
    return Node(GatherNd(), (states, concat(places, 1)))


@onnx("RNN", since=1)
def import_rnn(call: OnnxCall) -> list[Node]:
    """RNN."""

    def run(d: Direction, x: Node) -> tuple[Node, ...]:
        op = Rnn(d.activations, d.clip, bool(d.lengths))
        return (Node(op, (x, d.weights, d.state, *d.lengths)),)

    return _import(call, 1, ("Tanh",), 0, run)


@onnx("LSTM", since=1)
def import_lstm(call: OnnxCall) -> list[Node]:
    """LSTM."""

    def run(d: Direction, x: Node) -> tuple[Node, ...]:
        peepholes = d.layer.part(7, d.number)
        coupled = bool(call.attr("input_forget", 0))
        op = Lstm(d.activations, d.clip, bool(d.lengths), peepholes is not None, coupled)
        more = () if peepholes is None else (peepholes,)
        cell = d.layer.state(6, d.number)
        both = Node(op, (x, d.weights, d.state, cell, *more, *d.lengths))
        return item(both, 0), item(both, 1)

    return _import(call, 4, ("Sigmoid", "Tanh", "Tanh"), 0, run)


@onnx("GRU", since=1)
def import_gru(call: OnnxCall) -> list[Node]:
    """GRU, with the reset gate before or after the recurrent product."""
    after = bool(call.attr("linear_before_reset", 0))

    def run(d: Direction, x: Node) -> tuple[Node, ...]:
        op = Gru(d.activations, d.clip, bool(d.lengths), after)
        if not after:
            return (item(Node(op, (x, d.weights, d.state, *d.lengths)), 0),)
        bias = d.biases(2, 3)
        kept = expand(constant(0, x), (d.layer.units,)) if bias is None else bias[1]
        return (Node(op, (x, d.weights, d.state, kept, *d.lengths)),)

    return _import(call, 3, ("Sigmoid", "Tanh"), 1 if after else 0, run)
