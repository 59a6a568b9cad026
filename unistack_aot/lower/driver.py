"""Walks a graph and writes the naive program: a buffer per value, a launch per op, host steps per control op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, Constant, Input, Op
from unistack_aot.aicf.types import TensorType, TupleType
from unistack_aot.base.errors import Unsupported
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.mcir.program import Buffer, HostCopy, Kind, Launch, Program, Step
from unistack_aot.ops.core import Item
from unistack_aot.ops.op import TensorOp


@dataclass
class Lowering:
    """The state of one lowering: buffers made so far, constants by digest, the buffers of each node."""

    origins: Origins
    buffers: dict[str, Buffer] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    counter: int = 0

    def fresh(self, kind: TensorType, prefix: str = "v") -> str:
        """A new arena buffer for a value of this type."""
        name = f"{prefix}{self.counter}"
        self.counter += 1
        self.buffers[name] = Buffer(name, kind.dtype, kind.shape)
        return name

    def constant(self, node: Node, op: Constant) -> str:
        """The buffer of a constant, shared by equal contents."""
        digest = op.data.digest
        if digest not in self.digests:
            kind = node.tensor
            name = f"c{len(self.digests)}"
            self.buffers[name] = Buffer(
                name, kind.dtype, kind.shape, Kind.CONSTANT, constant=digest
            )
            self.constants[digest] = op.data.array
            self.digests[digest] = name
        return self.digests[digest]


Values = dict[Node, tuple[str, ...]]
ControlLowering = Callable[[Lowering, Node, tuple[str, ...], tuple[str, ...]], tuple[Step, ...]]
CONTROL: dict[type[Op], ControlLowering] = {}


def types_of(node: Node) -> tuple[TensorType, ...]:
    """The tensor types of a node's results."""
    return node.type.items if isinstance(node.type, TupleType) else (node.tensor,)


def lower_graph(graph: Graph, origins: Origins) -> tuple[Program, dict[str, Array]]:
    """The naive program of a graph, and its constants by digest."""
    state = Lowering(origins)
    values: Values = {}
    for node in graph.inputs:
        assert isinstance(node.op, Input)
        kind = node.tensor
        name = f"in_{len(values)}"
        state.buffers[name] = Buffer(name, kind.dtype, kind.shape, Kind.INPUT)
        values[node] = (name,)
    steps = list(lower_nodes(state, graph, values))
    for position, node in enumerate(graph.results):
        kind = node.tensor
        name = f"out_{position}"
        state.buffers[name] = Buffer(name, kind.dtype, kind.shape, Kind.OUTPUT)
        steps.append(HostCopy(values[node][0], name))
    return Program(graph.name, tuple(state.buffers.values()), tuple(steps)), state.constants


def lower_nodes(state: Lowering, graph: Graph, values: Values) -> tuple[Step, ...]:
    """Steps that compute every node of a graph or region; `values` holds its inputs and receives the rest.

    What has no elements needs no step.
    """
    steps: list[Step] = []
    for node in graph.nodes():
        if node in values:
            continue
        args = tuple(values[arg][0] for arg in node.args)
        match node.op:
            case Constant():
                values[node] = (state.constant(node, node.op),)
            case Item():
                values[node] = (values[node.args[0]][node.op.k],)
            case TensorOp():
                results = tuple(state.fresh(kind) for kind in types_of(node))
                values[node] = results
                if not all(0 in kind.shape for kind in types_of(node)):
                    steps.append(launch_of(state, node, node.op, args, results))
            case _:
                steps.extend(_control(state, node, args, values))
    return tuple(steps)


def launch_of(
    state: Lowering, node: Node, op: TensorOp, args: tuple[str, ...], results: tuple[str, ...]
) -> Launch:
    """The launch of an op's naive kernel; repeated arguments become one parameter."""
    distinct = tuple(dict.fromkeys(args))
    params = {
        name: Param(f"x{k}", state.buffers[name].dtype, state.buffers[name].shape)
        for k, name in enumerate(distinct)
    }
    outs = tuple(
        Param(f"y{k}", state.buffers[name].dtype, state.buffers[name].shape, Access.OUT)
        for k, name in enumerate(results)
    )
    kernel = op.lower(tuple(params[name] for name in args), outs)
    named = {p.name: p for p in kernel.params}
    bound = dict(
        zip(
            (*(p.name for p in params.values()), *(p.name for p in outs)),
            (*distinct, *results),
            strict=True,
        )
    )
    used = tuple(named.values())
    kernel = type(kernel)(used, kernel.body, kernel.reinterprets)
    return Launch(kernel, tuple(bound[p.name] for p in used), state.origins.of(node), op.name)


def _control(
    state: Lowering, node: Node, args: tuple[str, ...], values: Values
) -> tuple[Step, ...]:
    lowering = CONTROL.get(type(node.op))
    if lowering is None:
        where = ", ".join(state.origins.of(node)) or None
        raise Unsupported(f"{node.op.name} has no lowering", at=where)
    results = tuple(state.fresh(kind) for kind in types_of(node))
    values[node] = results
    return lowering(state, node, args, results)
