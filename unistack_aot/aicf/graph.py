"""A graph of AICF nodes with named inputs and outputs, and the side table of where nodes came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from unistack_aot.aicf.node import Node, postorder
from unistack_aot.aicf.op import Input
from unistack_aot.base.errors import IRError


@dataclass(frozen=True)
class Graph:
    """A closed function: every free `Input` node is listed in `inputs`; outputs are named nodes.

    Also the body of a control op: regions capture nothing, outer values come in as arguments.
    """

    name: str
    inputs: tuple[Node, ...]
    outputs: tuple[tuple[str, Node], ...]

    def nodes(self) -> Iterator[Node]:
        """Every node that an output needs, arguments first."""
        return postorder(*(node for _, node in self.outputs))

    @property
    def results(self) -> tuple[Node, ...]:
        """The output nodes in order."""
        return tuple(node for _, node in self.outputs)

    def with_results(self, results: Iterable[Node]) -> Graph:
        """The same signature around other result nodes."""
        outputs = tuple((name, node) for (name, _), node in zip(self.outputs, results, strict=True))
        return Graph(self.name, self.inputs, outputs)

    def input_named(self, label: str) -> Node:
        """The input node called `label`."""
        for node in self.inputs:
            if isinstance(node.op, Input) and node.op.label == label:
                return node
        raise IRError(f"graph {self.name} has no input {label}")


@dataclass
class Origins:
    """Which ONNX nodes each AICF node comes from; merged when a rewrite replaces nodes, never part of identity."""

    names: dict[Node, tuple[str, ...]] = field(default_factory=dict)

    def add(self, node: Node, labels: Iterable[str]) -> None:
        """Attach `labels` (kept in first-seen order, without repeats)."""
        old = self.names.get(node, ())
        self.names[node] = tuple(dict.fromkeys((*old, *labels)))

    def of(self, node: Node) -> tuple[str, ...]:
        """Labels of `node`; empty if unknown."""
        return self.names.get(node, ())

    def merge(self, fresh: Node, replaced: Iterable[Node]) -> None:
        """`fresh` stands for `replaced`: it inherits their labels."""
        labels = [label for node in replaced for label in self.of(node)]
        if labels:
            self.add(fresh, labels)


def rebuild(graph: Graph, changed: Mapping[Node, Node]) -> Graph:
    """The graph with nodes replaced; users of a replaced node are rebuilt, iteratively."""
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        target = changed.get(node)
        if target is not None:
            done[node] = target
            continue
        args = tuple(done[arg] for arg in node.args)
        done[node] = node if args == node.args else Node(node.op, args)
    return graph.with_results(done[node] for node in graph.results)
