"""What a graph must keep, checked by inferring every type again. Not here: later stages."""

from __future__ import annotations

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Input, Op
from unistack_aot.aicf.text import Found, attributes
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.errors import IRError


def verify(graph: Graph) -> None:
    """Check a graph and its regions; IRError that shows the node with its neighbours.

    Every node has the type its operation infers, every input is declared once, arguments come
    before users, outputs are tensors with names of their own.
    """
    pending = [graph]
    while pending:
        each = pending.pop()
        _signature(each)
        declared = frozenset(each.inputs)
        for node in each.nodes():
            _node(each, node, declared)
            pending += [v for _, v in attributes(node.op) if isinstance(v, Graph)]


def _signature(graph: Graph) -> None:
    labels = [node.op.label for node in graph.inputs if isinstance(node.op, Input)]
    if len(labels) != len(graph.inputs):
        raise IRError(f"an input of graph {graph.name} is no input node")
    if len(set(labels)) != len(labels):
        raise IRError(f"graph {graph.name} declares an input twice: {', '.join(labels)}")
    names = [name for name, _ in graph.outputs]
    if len(set(names)) != len(names):
        raise IRError(f"graph {graph.name} has outputs of one name: {', '.join(names)}")
    for name, node in graph.outputs:
        if not isinstance(node.type, TensorType):
            raise IRError(f"output {name} of graph {graph.name} is {node.type}, not a tensor")


def _node(graph: Graph, node: Node, declared: frozenset[Node]) -> None:
    if isinstance(node.op, Input):
        if node not in declared:
            raise _fault(graph, node, f"%{node.op.label} is used but not declared")
        return
    if Op.registry.get(node.op.name) is not type(node.op):
        raise _fault(graph, node, f"{type(node.op).__name__} is not a registered operation")
    try:
        wanted = node.op.infer(*(arg.type for arg in node.args))
    except IRError as fault:
        raise _fault(graph, node, fault.what) from fault
    if wanted != node.type:
        raise _fault(graph, node, f"it is {node.type}, should be {wanted}")


def _fault(graph: Graph, node: Node, why: str) -> IRError:
    users = tuple(user for user in graph.nodes() if node in user.args)
    return IRError(f"{why}\n{Found(node, users[:4])}", at=f"graph {graph.name}")
