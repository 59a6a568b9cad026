"""Recurrent layers as one ordered loop over time. Not here: the ONNX layers (recurrent_layers.py).

Each op takes the projected inputs of all time steps (a contraction), runs forward and gives the
states of every step; directions, layouts and final states are reversals and selections around it.
Steps at or behind a batch row's length give zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import TensorType, TupleType, Type
from unistack_aot.base.dtypes import DType, dtype_of, i64
from unistack_aot.base.errors import ExtentsDiffer, IRError
from unistack_aot.base.symbolic import Dim, Sym, symbol
from unistack_aot.ir.evaluate import evaluate
from unistack_aot.ir.formula import absolute, clamp, equal, exp, log, relu, sigmoid, tanh
from unistack_aot.ir.scalar import Arg, Load, Name, Scalar, cast, index_value, literal, where
from unistack_aot.mcir.monoids import accumulator
from unistack_aot.mcir.nodes import Axis, Fold, Kernel, Let, Loop, Param, Role, Stmt, Store
from unistack_aot.ops.op import TensorOp, sample


@dataclass(frozen=True)
class Activation:
    """A gate's function by its ONNX name, with its two parameters."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def scalar(self, x: Scalar) -> Scalar:
        """The function at x; IRError for an unknown name."""
        match self.name:
            case "Sigmoid":
                return sigmoid(x)
            case "Tanh":
                return tanh(x)
            case "Relu":
                return relu(x)
            case "Affine":
                return x * self.alpha + self.beta
            case "LeakyRelu":
                return where(x < 0, x * self.alpha, x)
            case "ThresholdedRelu":
                return where(x < self.alpha, literal(0, x.dtype), x)
            case "ScaledTanh":
                return tanh(x * self.beta) * self.alpha
            case "HardSigmoid":
                return clamp(x * self.alpha + self.beta, 0, 1)
            case "Elu":
                return where(x < 0, (exp(x) - 1) * self.alpha, x)
            case "Softsign":
                return x / (absolute(x) + 1)
            case "Softplus":
                return relu(x) + log(exp(-absolute(x)) + 1)
            case _:
                raise IRError(f"activation {self.name} is not known")

    def array(self, x: Array) -> Array:
        """The function over an array."""
        return evaluate(self.scalar(Arg(0, dtype_of(x.dtype))), args=(x,))


# name: (takes alpha, takes beta, default alpha, default beta); ONNX operator specification, LSTM
ACTIVATIONS: dict[str, tuple[bool, bool, float, float]] = {
    "Sigmoid": (False, False, 0.0, 0.0),
    "Tanh": (False, False, 0.0, 0.0),
    "Relu": (False, False, 0.0, 0.0),
    "Affine": (True, True, 1.0, 0.0),
    "LeakyRelu": (True, False, 0.01, 0.0),
    "ThresholdedRelu": (True, False, 1.0, 0.0),
    "ScaledTanh": (True, True, 1.0, 1.0),
    "HardSigmoid": (True, True, 0.2, 0.5),
    "Elu": (True, False, 1.0, 0.0),
    "Softsign": (False, False, 0.0, 0.0),
    "Softplus": (False, False, 0.0, 0.0),
}

SIGMOID, TANH = Activation("Sigmoid"), Activation("Tanh")


TIME = symbol("t0")  # the ordered loop of every kernel here
ROW, UNIT = symbol("b0"), symbol("h0")


@dataclass(frozen=True)
class Gates:
    """How gates are written inside the loops over `row` and `unit`: from projected inputs `x`,
    recurrent `weights`, and states of `hidden` units."""

    x: Param
    weights: Param
    hidden: Dim
    clip: float
    lengths: Param | None = None
    row: Sym = ROW
    unit: Sym = UNIT

    @property
    def wide(self) -> DType:
        """The dtype gates are computed in."""
        return accumulator(self.x.dtype)

    def before(self, initial: Param, states: Param, unit: Dim) -> Scalar:
        """A state after the step before this one."""
        first = Load(initial.name, (self.row, unit), initial.dtype)
        later = Load(states.name, (TIME - 1, self.row, unit), states.dtype)
        return cast(self.wide, where(equal(index_value(TIME), 0), first, later))

    def per_unit(self, vector: Param, block: int = 0) -> Scalar:
        """A vector's element for this unit, in a block of `hidden` elements."""
        place = (self.unit + self.hidden * block,)
        return cast(self.wide, Load(vector.name, place, vector.dtype))

    def recurrent(self, gate: int, state: Callable[[Sym], Scalar]) -> Fold:
        """`sum<gate>`: over the other units, the weights of `gate` times their state."""
        other = symbol(f"k{gate}")
        place = (self.unit + self.hidden * gate, other)
        weight = cast(self.wide, Load(self.weights.name, place, self.weights.dtype))
        axes = (Axis(str(other), self.hidden),)
        return Fold((f"sum{gate}",), "sum", axes, (weight * state(other),))

    def summed(self, gate: int) -> Scalar:
        """The recurrent sum of `gate`."""
        return Name(f"sum{gate}", self.wide)

    def projected(self, gate: int) -> Scalar:
        """The projected input of `gate`."""
        place = (TIME, self.row, self.unit + self.hidden * gate)
        return cast(self.wide, Load(self.x.name, place, self.x.dtype))

    def total(self, gate: int) -> Scalar:
        """Projected input plus recurrent sum."""
        return self.projected(gate) + self.summed(gate)

    def clipped(self, x: Scalar) -> Scalar:
        """x limited to [-clip, clip]; a clip of 0 is none."""
        return clamp(x, -self.clip, self.clip) if self.clip else x

    def store(self, states: Param, value: Scalar) -> Store:
        """The state of this step; 0 behind the row's length."""
        value = cast(states.dtype, value)
        if self.lengths is not None:
            length = cast(i64, Load(self.lengths.name, (self.row,), self.lengths.dtype))
            value = where(index_value(TIME) < length, value, literal(0, states.dtype))
        return Store(states.name, (TIME, self.row, self.unit), value)

    def everywhere(self, body: tuple[Stmt, ...]) -> Loop:
        """Independent loops over rows and units."""
        return Loop(str(self.row), self.x.shape[1], (Loop(str(self.unit), self.hidden, body),))


def in_time(x: Param, *parts: Loop) -> tuple[Stmt, ...]:
    """Step after step the parts, one after another."""
    return (Loop(str(TIME), x.shape[0], parts, Role.SEQ),)


class Recurrence(TensorOp, abstract=True):
    """Operands: projected inputs [time, rows, gates * units], weights [gates * units, units], the
    initial state [rows, units], then what the op adds, and last (if `lengths`) i32 lengths [rows].

    The first result holds the states [time, rows, units].
    """

    activations: tuple[Activation, ...]
    clip: float
    lengths: bool
    gates: ClassVar[int] = 1

    family = "scan"

    @property
    def extra(self) -> tuple[str, ...]:
        """Shapes of the added operands, in the letters B (rows), H (units), P (3 * units)."""
        return ()

    def infer(self, *types: Type) -> Type:
        """The states' type, and that of what else is kept."""
        x, weights, initial, *more = (tensor(t, self.name) for t in types)
        if x.rank != 3 or weights.rank != 2:
            raise IRError(f"{self.name} of {x} with weights {weights}")
        time, rows, width = x.shape
        units = weights.shape[1]
        letters = {"B": rows, "H": units, "P": units * 3}
        wanted = [(rows, units), *(tuple(letters[c] for c in e) for e in self.extra)]
        wanted += [(rows,)] if self.lengths else []
        shapes = [initial.shape, *(m.shape for m in more)]
        what = f"{self.name} of {x}, weights {weights} and {initial}"
        ranks = [len(s) for s in shapes] != [len(w) for w in wanted]
        if width != units * self.gates or weights.shape[0] != width or ranks:
            raise IRError(what)
        for shape, want in zip(shapes, wanted, strict=True):
            for a, b in zip(shape, want, strict=True):
                if a != b:
                    raise ExtentsDiffer(what, a, b)
        states = x.with_shape((time, rows, units))
        return self.results(states)

    def results(self, states: TensorType) -> Type:
        """What is kept besides the states; by default nothing."""
        return states

    def steps(self, arrays: Sequence[Array]) -> Iterator[tuple[Array, Array]]:
        """Per time step: the projected inputs, and a column that is False behind a row's length."""
        x = arrays[0]
        for time in range(x.shape[0]):
            inside = np.ones((x.shape[1], 1), bool)
            if self.lengths:
                inside = (arrays[-1] > time)[:, None]
            yield x[time], inside

    def limited(self, x: Array) -> Array:
        """x limited to [-clip, clip]."""
        return np.clip(x, -self.clip, self.clip) if self.clip else x

    def writing(self, args: tuple[Param, ...], **loops: Sym) -> Gates:
        """The gates of this op's kernel."""
        lengths = args[-1] if self.lengths else None
        return Gates(args[0], args[1], args[1].shape[1], self.clip, lengths, **loops)


@dataclass(frozen=True)
class Rnn(Recurrence):
    """h = f(x + R h)."""

    activations: tuple[Activation, ...] = (TANH,)
    clip: float = 0.0
    lengths: bool = False

    gates = 1
    samples = (
        sample("f32[3,2,4]", "f32[4,4]", "f32[2,4]"),
        sample(
            "f32[4,2,3]",
            "f32[3,3]",
            "f32[2,3]",
            "i32[2]",
            fill=("normal", "normal", "normal", "index:4"),
            lengths=True,
        ),
    )

    def reference(self, *arrays: Array) -> Array:
        """Step after step."""
        state, states = arrays[2], list[Array]()
        for x, inside in self.steps(arrays):
            fresh = self.activations[0].array(self.limited(x + state @ arrays[1].T))
            state = np.where(inside, fresh, 0).astype(x.dtype)
            states.append(state)
        return np.stack(states)

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """One ordered loop over time."""
        (states,) = results
        gate = self.writing(args)
        total = gate.recurrent(0, lambda other: gate.before(args[2], states, other))
        value = self.activations[0].scalar(gate.clipped(gate.total(0)))
        body = gate.everywhere((total, gate.store(states, value)))
        return Kernel((*args, *results), in_time(args[0], body))


@dataclass(frozen=True)
class Lstm(Recurrence):
    """Gates i, o, f and cell c, in this order; activations (f, g, h).

    Added operands: the initial cell [rows, units] and, if `peepholes`, their weights (i, o, f).
    Results: hidden states and cell states of all steps. With `coupled`, f = 1 - i.
    """

    activations: tuple[Activation, ...] = (SIGMOID, TANH, TANH)
    clip: float = 0.0
    lengths: bool = False
    peepholes: bool = False
    coupled: bool = False

    gates = 4
    samples = (
        sample("f32[3,2,8]", "f32[8,2]", "f32[2,2]", "f32[2,2]"),
        sample("f16[2,1,8]", "f16[8,2]", "f16[1,2]", "f16[1,2]", clip=0.5, coupled=True),
        sample(
            "f32[4,2,12]",
            "f32[12,3]",
            "f32[2,3]",
            "f32[2,3]",
            "f32[9]",
            "i32[2]",
            fill=("normal", "normal", "normal", "normal", "normal", "index:4"),
            lengths=True,
            peepholes=True,
        ),
    )

    @property
    def extra(self) -> tuple[str, ...]:
        """The initial cell and the peepholes."""
        return ("BH", "P") if self.peepholes else ("BH",)

    def results(self, states: TensorType) -> Type:
        """Hidden and cell states."""
        return TupleType((states, states))

    def reference(self, *arrays: Array) -> tuple[Array, ...]:
        """Step after step."""
        weights, hidden, cell = arrays[1:4]
        f, g, h = (a.array for a in self.activations)
        peep = np.split(arrays[4], 3) if self.peepholes else ()

        def seen(gate: Array, block: int, cell: Array) -> Array:
            return (
                gate + peep[block] * cell if peep else gate
            )  # not 0 * cell: a cell may be infinite

        found: list[tuple[Array, Array]] = []
        for x, inside in self.steps(arrays):
            i, o, forget, c = np.split(x + hidden @ weights.T, 4, -1)
            i = f(self.limited(seen(i, 0, cell)))
            forget = 1 - i if self.coupled else f(self.limited(seen(forget, 2, cell)))
            cell = np.where(inside, forget * cell + i * g(self.limited(c)), 0).astype(x.dtype)
            o = f(self.limited(seen(o, 1, cell)))
            hidden = np.where(inside, o * h(cell), 0).astype(x.dtype)
            found.append((hidden, cell))
        return np.stack([a for a, _ in found]), np.stack([b for _, b in found])

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """One ordered loop over time."""
        states, cells = results
        gate = self.writing(args)
        f, g, h = (a.scalar for a in self.activations)

        def peep(block: int, cell: Scalar) -> Scalar:
            total = gate.total(block)
            return total + gate.per_unit(args[4], block) * cell if self.peepholes else total

        sums = [
            gate.recurrent(k, lambda other: gate.before(args[2], states, other))
            for k in range(4)
            if not (k == 2 and self.coupled)
        ]
        before = gate.before(args[3], cells, gate.unit)
        enter = f(gate.clipped(peep(0, before)))
        forget = 1 - enter if self.coupled else f(gate.clipped(peep(2, before)))
        cell = Let("cell", forget * before + enter * g(gate.clipped(gate.total(3))))
        after = Name("cell", gate.wide)
        value = f(gate.clipped(peep(1, after))) * h(after)
        stores = (gate.store(cells, after), gate.store(states, value))
        body = gate.everywhere((*sums, cell, *stores))
        return Kernel((*args, *results), in_time(args[0], body))


@dataclass(frozen=True)
class Gru(Recurrence):
    """Gates z (update), r (reset) and candidate h, in this order; activations (f, g).

    With `reset_after` (ONNX linear_before_reset) the reset scales the recurrent sum, whose bias
    [units] is the added operand. Without it the reset scales the state: the second result is that
    scaled state, of the last step.
    """

    activations: tuple[Activation, ...] = (SIGMOID, TANH)
    clip: float = 0.0
    lengths: bool = False
    reset_after: bool = False

    gates = 3
    samples = (
        sample("f32[3,2,6]", "f32[6,2]", "f32[2,2]"),
        sample("f32[3,2,6]", "f32[6,2]", "f32[2,2]", "f32[2]", reset_after=True),
        sample(
            "f32[4,2,9]",
            "f32[9,3]",
            "f32[2,3]",
            "i32[2]",
            fill=("normal", "normal", "normal", "index:4"),
            lengths=True,
            clip=0.7,
        ),
    )

    @property
    def extra(self) -> tuple[str, ...]:
        """The bias of the candidate's recurrent sum."""
        return ("H",) if self.reset_after else ()

    def results(self, states: TensorType) -> Type:
        """The states and, where the reset scales them, that product."""
        if self.reset_after:
            return states
        return TupleType((states, states.with_shape(states.shape[1:])))

    def reference(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """Step after step."""
        weights, state = np.split(arrays[1], 3), arrays[2]
        f, g = (a.array for a in self.activations)
        scaled, states = np.zeros_like(state), list[Array]()
        for x, inside in self.steps(arrays):
            z, r, h = np.split(x, 3, -1)
            z = f(self.limited(z + state @ weights[0].T))
            r = f(self.limited(r + state @ weights[1].T))
            scaled = (r * state).astype(x.dtype)
            if self.reset_after:
                h = g(self.limited(h + r * (state @ weights[2].T + arrays[3])))
            else:
                h = g(self.limited(h + scaled @ weights[2].T))
            state = np.where(inside, (1 - z) * h + z * state, 0).astype(x.dtype)
            states.append(state)
        return np.stack(states) if self.reset_after else (np.stack(states), scaled)

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """One ordered loop over time; two parts per step where the reset scales the state."""
        states = results[0]
        gate = self.writing(args)
        f, g = (a.scalar for a in self.activations)

        def state(other: Dim) -> Scalar:
            return gate.before(args[2], states, other)

        update = f(gate.clipped(gate.total(0)))
        if self.reset_after:
            reset = f(gate.clipped(gate.total(1)))
            inner = gate.projected(2) + reset * (gate.summed(2) + gate.per_unit(args[3]))
            sums = tuple(gate.recurrent(k, state) for k in range(3))
            parts: tuple[Loop, ...] = ()
        else:
            scaled = results[1]
            parts = (self._scale(args, states, scaled),)

            def held(other: Dim) -> Scalar:
                return cast(gate.wide, Load(scaled.name, (gate.row, other), scaled.dtype))

            inner = gate.total(2)
            sums = (gate.recurrent(0, state), gate.recurrent(2, held))
        fresh = (1 - update) * g(gate.clipped(inner)) + update * state(gate.unit)
        body = gate.everywhere((*sums, gate.store(states, fresh)))
        return Kernel((*args, *results), in_time(args[0], *parts, body))

    def _scale(self, args: tuple[Param, ...], states: Param, scaled: Param) -> Loop:
        """The part that multiplies the reset gate with the state before this step."""
        gate = self.writing(args, row=symbol("b1"), unit=symbol("h1"))
        total = gate.recurrent(1, lambda other: gate.before(args[2], states, other))
        reset = self.activations[0].scalar(gate.clipped(gate.total(1)))
        value = cast(scaled.dtype, reset * gate.before(args[2], states, gate.unit))
        return gate.everywhere((total, Store(scaled.name, (gate.row, gate.unit), value)))
