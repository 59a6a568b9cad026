"""Control ops over closed regions: If, Loop and Scan. Not here: how the host runs them (lower/).

A region is a Graph; its inputs are, in order, what the op gives it and then what it takes from
outside, which the op receives as its last arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, Input, Op, tensor
from unistack_aot.aicf.text import attributes
from unistack_aot.aicf.types import Shape, TensorType, TupleType, Type
from unistack_aot.base.dtypes import DType, bool_, dtype_of, f64, i64
from unistack_aot.base.errors import BadInput, IllTyped, IRError
from unistack_aot.base.symbolic import Dim, symbols
from unistack_aot.ops.core import constant, item
from unistack_aot.ops.known import known_dims, known_value
from unistack_aot.ops.onnx import OnnxCall, Subgraph, onnx
from unistack_aot.ops.reindex import axis_of, reshape, static, transpose
from unistack_aot.ops.slices import concat, slice_axis

UNROLLED = 64  # iterations: a loop whose values change shape is written out, up to this many


def as_type(kinds: Sequence[TensorType]) -> Type:
    """One type alone, several as a tuple."""
    return kinds[0] if len(kinds) == 1 else TupleType(tuple(kinds))


def results_of(node: Node) -> list[Node]:
    """The results of a node, one node each."""
    if isinstance(node.type, TensorType):
        return [node]
    return [item(node, k) for k in range(len(node.type.items))]


def run_region(region: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The region's results for its inputs; floats wider than declared stay wide."""
    feeds: dict[str, Array] = {}
    wide = False
    for node, array in zip(region.inputs, arrays, strict=True):
        assert isinstance(node.op, Input)
        feeds[node.op.label] = array
        kept = node.tensor.dtype
        wide |= dtype_of(array.dtype) is f64 and kept is not f64
    return list(evaluate_graph(region, feeds, wide).values())


def _check_inputs(region: Graph, given: Sequence[Type], what: str) -> None:
    wanted = [node.type for node in region.inputs]
    if list(given) != wanted:
        kinds = ", ".join(map(str, given))
        raise IRError(f"{what} takes ({', '.join(map(str, wanted))}), not ({kinds})")


@dataclass(frozen=True)
class If(Op):
    """The results of one region or the other by a bool scalar.

    Arguments: the condition, what `then` takes from outside, what `otherwise` takes.
    """

    then: Graph
    otherwise: Graph

    family = "control"

    def infer(self, *types: Type) -> Type:
        """The regions' common result types."""
        condition, *outer = types
        if condition != TensorType(bool_, ()):
            raise IRError(f"a condition of type {condition}")
        split = len(self.then.inputs)
        _check_inputs(self.then, outer[:split], "the then region")
        _check_inputs(self.otherwise, outer[split:], "the else region")
        kinds = [node.tensor for node in self.then.results]
        others = [node.tensor for node in self.otherwise.results]
        if kinds != others:
            pairs = zip(kinds, others, strict=False)
            differing = next((f"{a} and {b}" for a, b in pairs if a != b), "other counts")
            raise IRError(f"branches whose results are {differing}")
        return as_type(kinds)

    def reference(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """Only the chosen region runs."""
        split = 1 + len(self.then.inputs)
        if bool(arrays[0]):
            found = run_region(self.then, arrays[1:split])
        else:
            found = run_region(self.otherwise, arrays[split:])
        return found[0] if len(found) == 1 else tuple(found)


@dataclass(frozen=True)
class Refused(Op):
    """A result of a branch that cannot be typed: computing it ends the run with the reason."""

    dtype: DType
    shape: Shape
    reason: str

    family = "control"

    def infer(self, *types: Type) -> Type:
        """The type that the other branch gives."""
        return TensorType(self.dtype, self.shape)

    def reference(self, *arrays: Array) -> Array:
        """No value: an error."""
        raise BadInput(self.reason)


def refusals(graph: Graph) -> Iterator[Refused]:
    """Every result that a graph's regions refuse to compute."""
    for node in graph.nodes():
        if isinstance(node.op, Refused):
            yield node.op
        for _, value in attributes(node.op):
            if isinstance(value, Graph):
                yield from refusals(value)


@dataclass(frozen=True)
class Loop(Op):
    """Repeat `body(iteration, condition, carried..., outer...)`: (condition, carried..., rows...).

    Arguments: the number of trips (i64 scalar), the first condition (bool scalar), `carried`
    initial values, outer values. `trips` is the number where it is known: only then may results be
    stacked along a new first axis. Results: final carried values, then stacked ones.
    """

    body: Graph
    carried: int
    trips: Dim | None = None

    family = "control"

    def infer(self, *types: Type) -> Type:
        """Types of the carried values, and of the stacks."""
        trips, condition, *rest = types
        if trips != TensorType(i64, ()) or condition != TensorType(bool_, ()):
            raise IRError(f"a loop of {trips} trips while {condition}")
        _check_inputs(self.body, (trips, condition, *rest), "the body")
        kinds = [node.tensor for node in self.body.results]
        carried, stacked = kinds[1 : 1 + self.carried], kinds[1 + self.carried :]
        if kinds[0] != condition or list(rest[: self.carried]) != carried:
            raise IRError("a body whose carried values change their types")
        if stacked and self.trips is None:
            raise IRError("stacked results of an unknown number of iterations")
        deep = [k.with_shape((self.trips or 0, *k.shape)) for k in stacked]
        return as_type([*carried, *deep])

    def reference(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """Iteration after iteration."""
        count, going = int(arrays[0]), bool(arrays[1])
        values = list(arrays[2 : 2 + self.carried])
        outer = arrays[2 + self.carried :]
        stacks: list[list[Array]] = [[] for _ in self.body.results[1 + self.carried :]]
        trip = 0
        while going and trip < count:
            given = (np.asarray(trip, np.int64), np.asarray(going), *values, *outer)
            condition, *found = run_region(self.body, given)
            going, values = bool(condition), found[: self.carried]
            for stack, value in zip(stacks, found[self.carried :], strict=True):
                stack.append(value)
            trip += 1
        kinds = [node.tensor for node in self.body.results[1 + self.carried :]]
        joined = [_stacked(s, k) for s, k in zip(stacks, kinds, strict=True)]
        found = [*values, *joined]
        return found[0] if len(found) == 1 else tuple(found)


def _stacked(values: list[Array], kind: TensorType) -> Array:
    if values:
        return np.stack(values)
    return np.zeros((0, *static(kind.shape, "shape")), kind.dtype.numpy)


@dataclass(frozen=True)
class Scan(Op):
    """Repeat `body(carried..., slices..., outer...) -> (carried..., stacked...)` along first axes.

    Arguments: `carried` initial values, the sequences whose slices the body takes, outer values.
    `backwards` says per sequence, then per stacked result, whether it runs from the end.
    """

    body: Graph
    carried: int
    backwards: tuple[bool, ...]

    family = "control"

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.backwards) - (len(self.body.results) - self.carried)

    def infer(self, *types: Type) -> Type:
        """Types of the carried values, and of the stacks."""
        stop = self.carried + self.sequences
        sequences = [tensor(t, self.name) for t in types[self.carried : stop]]
        if not sequences or any(not s.rank for s in sequences):
            raise IRError("a scan over no sequence")
        count = sequences[0].shape[0]
        if any(s.shape[0] != count for s in sequences):
            raise IRError(f"sequences of different length: {', '.join(map(str, sequences))}")
        slices = [s.with_shape(s.shape[1:]) for s in sequences]
        _check_inputs(self.body, (*types[: self.carried], *slices, *types[stop:]), "the body")
        kinds = [node.tensor for node in self.body.results]
        if kinds[: self.carried] != list(types[: self.carried]):
            raise IRError("a body whose carried values change their types")
        deep = [k.with_shape((count, *k.shape)) for k in kinds[self.carried :]]
        return as_type([*kinds[: self.carried], *deep])

    def reference(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """Iteration after iteration."""
        stop = self.carried + self.sequences
        values, outer = list(arrays[: self.carried]), arrays[stop:]
        rows = [
            np.flip(a, 0) if back else a
            for a, back in zip(arrays[self.carried : stop], self.backwards, strict=False)
        ]
        stacks: list[list[Array]] = [[] for _ in self.body.results[self.carried :]]
        for trip in range(rows[0].shape[0]):
            found = run_region(self.body, (*values, *(r[trip] for r in rows), *outer))
            values = found[: self.carried]
            for stack, value in zip(stacks, found[self.carried :], strict=True):
                stack.append(value)
        kinds = [node.tensor for node in self.body.results[self.carried :]]
        joined = [_stacked(s, k) for s, k in zip(stacks, kinds, strict=True)]
        ends = self.backwards[self.sequences :]
        joined = [np.flip(j, 0) if back else j for j, back in zip(joined, ends, strict=True)]
        found = [*values, *joined]
        return found[0] if len(found) == 1 else tuple(found)


def _scalar(node: Node) -> Node:
    return reshape(node, ())


@onnx("If", since=1)
def import_if(call: OnnxCall) -> list[Node]:
    """If; a condition known at compile time leaves only its branch, in place.

    A branch whose operands do not fit becomes one that refuses to run: it may be meant for other
    inputs than those the model is compiled for.
    """
    known = call.constant(0)
    if known is not None:
        taken = "then" if bool(known.reshape(-1)[0]) else "else"
        return list(_branch(call, taken).inline(()))
    built: dict[str, tuple[Graph, tuple[Node, ...]]] = {}
    faults: dict[str, IllTyped] = {}
    for name in ("then", "else"):
        try:
            built[name] = _branch(call, name).build(())
        except IllTyped as fault:
            faults[name] = fault
    if not built:
        raise faults["then"]
    for name, fault in faults.items():
        (typed,) = built.values()
        built[name] = _refusing(call.label, name, fault, typed[0]), ()
    (yes, outer_yes), (no, outer_no) = built["then"], built["else"]
    if len(yes.results) != len(no.results):
        given = f"{len(yes.results)} and {len(no.results)} results"
        raise call.refuse(f"whose branches give {given}", "check the model with onnx.checker")
    mismatch = _mismatch(yes, no)
    if mismatch:
        dims = [d for g in (yes, no) for node in g.results for d in node.tensor.shape]
        names = sorted({name for dim in dims for name in symbols(dim)})
        raise call.refuse(
            f"whose branches give {mismatch}",
            f"declare a size for {' or '.join(names) or 'its inputs'}, so that it is known",
        )
    return results_of(Node(If(yes, no), (_scalar(call.arg(0)), *outer_yes, *outer_no)))


def _branch(call: OnnxCall, name: str) -> Subgraph:
    found: Subgraph = call.attributes[f"{name}_branch"]
    return found


def _refusing(label: str, name: str, fault: IllTyped, typed: Graph) -> Graph:
    """A region that gives what `typed` gives, but refuses to."""
    reason = f"the {name} branch of {label} cannot run: {fault.what} (at {fault.at})"
    results = tuple(
        (result, Node(Refused(node.tensor.dtype, node.tensor.shape, reason)))
        for result, node in typed.outputs
    )
    return Graph(f"{name}_refused", (), results)


def _mismatch(yes: Graph, no: Graph) -> str | None:
    for one, other in zip(yes.results, no.results, strict=True):
        if one.tensor != other.tensor:
            return f"{one.tensor} and {other.tensor}"
    return None


@onnx("Loop", since=1)
def import_loop(call: OnnxCall) -> list[Node]:
    """Loop; without trips and condition inputs it would never end."""
    body: Subgraph = call.attributes["body"]
    trips, first = call.optional(0), call.optional(1)
    count = None if trips is None else known_dims(trips)
    known = None if first is None else known_value(first)
    starts = True if first is None else None if known is None else bool(known.reshape(-1)[0])
    carried = tuple(call.arg(k) for k in range(2, len(call.args)))
    if starts is False or (count is not None and count[0] == 0):
        if call.outputs > len(carried):
            raise call.refuse("that never runs but stacks results", "remove it from the model")
        return list(carried)
    limit = constant(np.int64(2**63 - 1)) if trips is None else _scalar(trips)
    going = constant(np.bool_(True)) if first is None else _scalar(first)
    iteration = Node(Input("iteration", TensorType(i64, ())))
    condition = Node(Input("condition", TensorType(bool_, ())))
    region, outer = body.build((iteration, condition, *carried))
    _gives(region, 1 + len(carried), call)
    endless = starts is True and _always(region)
    static_count = count[0] if count is not None and endless else None
    kinds = [node.tensor for node in region.results[1 : 1 + len(carried)]]
    if kinds != [node.tensor for node in carried]:
        if isinstance(static_count, int) and static_count <= UNROLLED:
            return _unrolled(body, static_count, carried)
        change = next(
            f"from {a.tensor} to {b}" for a, b in zip(carried, kinds, strict=True) if a.tensor != b
        )
        raise call.refuse(
            f"whose carried value changes {change}", "export with a fixed number of iterations"
        )
    if len(region.results) > 1 + len(carried) and static_count is None:
        raise call.refuse(
            "that stacks results of a number of iterations that depends on data",
            "export with a known number of iterations and a condition that stays true",
        )
    op = Loop(region, len(carried), static_count)
    return results_of(Node(op, (limit, going, *carried, *outer)))


def _always(region: Graph) -> bool:
    """Whether the body's condition stays what it was."""
    after = region.results[0]
    known = known_value(after)
    return after is region.inputs[1] or (known is not None and bool(known))


def _unrolled(body: Subgraph, count: int, carried: tuple[Node, ...]) -> list[Node]:
    """Every iteration in place."""
    values = list(carried)
    stacks: list[list[Node]] = []
    for trip in range(count):
        given = (constant(np.int64(trip)), constant(np.bool_(True)), *values)
        _, *found = body.inline(given)
        values = found[: len(carried)]
        fresh = found[len(carried) :]
        stacks = stacks or [[] for _ in fresh]
        for stack, value in zip(stacks, fresh, strict=True):
            stack.append(reshape(value, (1, *value.tensor.shape)))
    return [*values, *(concat(stack, 0) for stack in stacks)]


@onnx("Scan", since=9)
def import_scan(call: OnnxCall) -> list[Node]:
    """Scan; axes other than the first are moved there and back."""
    body: Subgraph = call.attributes["body"]
    count = int(call.attr("num_scan_inputs", 0))
    carried = [call.arg(k) for k in range(len(call.args) - count)]
    sequences = [call.arg(k) for k in range(len(carried), len(call.args))]
    axes = call.attr("scan_input_axes", (0,) * count)
    moved = [
        _first(s, axis_of(a, s.tensor.rank, call)) for s, a in zip(sequences, axes, strict=True)
    ]
    slices = [_slice_of(s) for s in moved]
    region, outer = body.build((*carried, *slices))
    _gives(region, len(carried), call)
    stacked = len(region.results) - len(carried)
    backwards = (
        *call.attr("scan_input_directions", (0,) * count),
        *call.attr("scan_output_directions", (0,) * stacked),
    )
    kinds = [node.tensor for node in region.results[: len(carried)]]
    for value, kind in zip(carried, kinds, strict=True):
        if value.tensor != kind:
            raise call.refuse(
                f"whose carried value changes from {value.tensor} to {kind}",
                "export with carried values of one type",
            )
    op = Scan(region, len(carried), tuple(bool(b) for b in backwards))
    found = results_of(Node(op, (*carried, *moved, *outer)))
    ends = call.attr("scan_output_axes", (0,) * stacked)
    for k, axis in enumerate(ends):
        value = found[len(carried) + k]
        found[len(carried) + k] = _back(value, axis_of(axis, value.tensor.rank, call))
    return found


def _gives(region: Graph, fewest: int, call: OnnxCall) -> None:
    """Refuse a body that does not give what its node carries."""
    if len(region.results) < fewest:
        raise call.refuse(
            f"whose body gives {len(region.results)} results, not the {fewest} that it carries",
            "check the model with onnx.checker",
        )


def _slice_of(sequence: Node) -> Node:
    """A slice as the body sees it: only its type matters."""
    one = slice_axis(sequence, 0, 0, 1)
    return reshape(one, sequence.tensor.shape[1:])


def _first(x: Node, axis: int) -> Node:
    return transpose(x, (axis, *(k for k in range(x.tensor.rank) if k != axis)))


def _back(x: Node, axis: int) -> Node:
    order = list(range(1, x.tensor.rank))
    return transpose(x, (*order[:axis], 0, *order[axis:]))
