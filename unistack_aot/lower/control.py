"""If, Loop and Scan as host steps over the lowered bodies of their regions."""

from __future__ import annotations

from collections.abc import Sequence

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.dtypes import bool_, i64
from unistack_aot.lower.driver import CONTROL, Lowering, Values, lower_nodes
from unistack_aot.mcir.program import Carried, HostCopy, HostIf, HostLoop, HostRefuse, Sliced, Step
from unistack_aot.ops.control import If, Loop, Refused, Scan

Names = tuple[str, ...]


def lower_if(state: Lowering, node: Node, args: Names, results: Names) -> tuple[Step, ...]:
    """Both branches copy their results to the same buffers."""
    op = node.op
    assert isinstance(op, If)
    split = 1 + len(op.then.inputs)
    then = _branch(state, op.then, args[1:split], results)
    otherwise = _branch(state, op.otherwise, args[split:], results)
    return (HostIf(args[0], then, otherwise, state.origins.of(node)),)


def _branch(state: Lowering, region: Graph, args: Names, results: Names) -> tuple[Step, ...]:
    steps, found = _region(state, region, args)
    copies = (HostCopy(a, b) for a, b in zip(found, results, strict=True))
    return (*steps, *copies)


def _region(
    state: Lowering, region: Graph, args: Sequence[str]
) -> tuple[tuple[Step, ...], list[str]]:
    """Steps of a region over argument buffers, and the buffers of its results."""
    values: Values = {node: (name,) for node, name in zip(region.inputs, args, strict=True)}
    steps = lower_nodes(state, region, values)
    return steps, [values[node][0] for node in region.results]


def lower_loop(state: Lowering, node: Node, args: Names, results: Names) -> tuple[Step, ...]:
    """Iteration number and condition are scalars in memory; carried values move after each iteration."""
    op = node.op
    assert isinstance(op, Loop)
    trips, condition, *rest = args
    initial, outer = rest[: op.carried], rest[op.carried :]
    iteration = state.fresh(TensorType(i64, ()), "t")
    going = state.fresh(TensorType(bool_, ()), "t")
    entries = [_like(state, name) for name in initial]
    steps, found = _region(state, op.body, (iteration, going, *entries, *outer))
    exits, copies = _own_exits(state, found)
    carried = [Carried(condition, going, exits[0], _like(state, going))]
    triples = zip(initial, entries, exits[1 : 1 + op.carried], results, strict=False)
    carried += [Carried(i, e, x, f) for i, e, x, f in triples]
    rows = zip(results[op.carried :], exits[1 + op.carried :], strict=True)
    loop = HostLoop(
        trips=trips if op.trips is None else op.trips,
        condition=condition,
        next_condition=exits[0],
        iteration=iteration,
        carried=tuple(carried),
        scanned=(),
        stacked=tuple(Sliced(deep, row) for deep, row in rows),
        body=(*steps, *copies),
        origins=state.origins.of(node),
    )
    return (loop,)


def lower_scan(state: Lowering, node: Node, args: Names, results: Names) -> tuple[Step, ...]:
    """Slices of the sequences are brought in, rows of the stacked results taken out, per iteration."""
    op = node.op
    assert isinstance(op, Scan)
    stop = op.carried + op.sequences
    initial, sequences, outer = args[: op.carried], args[op.carried : stop], args[stop:]
    entries = [_like(state, name) for name in initial]
    slices = [
        state.fresh(region_input.tensor, "t") for region_input in op.body.inputs[op.carried : stop]
    ]
    steps, found = _region(state, op.body, (*entries, *slices, *outer))
    exits, copies = _own_exits(state, found)
    carried = zip(initial, entries, exits, results, strict=False)
    back_in, back_out = op.backwards[: op.sequences], op.backwards[op.sequences :]
    scanned = zip(sequences, slices, back_in, strict=True)
    rows = zip(results[op.carried :], exits[op.carried :], back_out, strict=True)
    loop = HostLoop(
        trips=state.buffers[sequences[0]].shape[0],
        condition=None,
        next_condition=None,
        iteration=None,
        carried=tuple(Carried(i, e, x, f) for i, e, x, f in carried),
        scanned=tuple(Sliced(s, part, back) for s, part, back in scanned),
        stacked=tuple(Sliced(deep, row, back) for deep, row, back in rows),
        body=(*steps, *copies),
        origins=state.origins.of(node),
    )
    return (loop,)


def lower_refused(state: Lowering, node: Node, args: Names, results: Names) -> tuple[Step, ...]:
    """A step that ends the run."""
    assert isinstance(node.op, Refused)
    return (HostRefuse(results[0], node.op.reason),)


def _like(state: Lowering, name: str) -> str:
    buffer = state.buffers[name]
    return state.fresh(TensorType(buffer.dtype, buffer.shape), "t")


def _own_exits(state: Lowering, found: list[str]) -> tuple[list[str], list[HostCopy]]:
    """A buffer of its own for every result, so that moving one to its entry cannot overwrite another."""
    exits = [_like(state, name) for name in found]
    return exits, [HostCopy(a, b) for a, b in zip(found, exits, strict=True)]


CONTROL[If] = lower_if
CONTROL[Loop] = lower_loop
CONTROL[Scan] = lower_scan
CONTROL[Refused] = lower_refused
