"""Numpy evaluation of a graph, node by node: the meaning everything else is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from unistack_aot.aicf.bind import bind_graph, dims_of
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, Input
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.errors import BadInput, IRError

Value = Array | tuple[Array, ...]


def evaluate_graph(
    graph: Graph, feeds: Mapping[str, Array], wide: bool = False
) -> dict[str, Array]:
    """The outputs by name for inputs by name; symbolic dimensions take the feeds' extents.

    With `wide`, every float is kept in f64: the float64 evaluation of the same formulas.
    """
    labels = [node.op.label for node in graph.inputs if isinstance(node.op, Input)]
    missing = [label for label in labels if label not in feeds]
    if missing:
        raise BadInput(f"no value for input {missing[0]}", hint=f"give {', '.join(labels)}")
    dims = dims_of(graph, {label: feeds[label].shape for label in labels})
    bound = bind_graph(graph, dims) if dims else graph
    values: dict[Node, Value] = {}
    for node in bound.inputs:
        if isinstance(node.op, Input):
            values[node] = _widened(feeds[node.op.label]) if wide else feeds[node.op.label]
    for node, value in evaluate_nodes(bound, values, wide):
        values[node] = value
    found = {name: values[node] for name, node in bound.outputs}
    return {name: value for name, value in found.items() if not isinstance(value, tuple)}


def evaluate_nodes(
    graph: Graph, values: dict[Node, Value], wide: bool = False
) -> Iterator[tuple[Node, Value]]:
    """Each node with its value, in order; `values` holds inputs first, then what is needed yet."""
    order = list(graph.nodes())
    uses = Counter(arg for node in order for arg in node.args)
    uses.update(graph.results)
    for node in order:
        if node in values:
            continue
        if isinstance(node.op, Input):
            raise IRError(f"{node.op.label} is used but is no input of graph {graph.name}")
        value = node_value(node, [values[arg] for arg in node.args], wide)
        values[node] = value
        yield node, value
        for arg in node.args:
            uses[arg] -= 1
            if not uses[arg]:
                values.pop(arg, None)


def node_value(node: Node, args: list[Value], wide: bool = False) -> Value:
    """A node's value from its arguments' values; IRError if its type is not what the node says.

    An argument with several results is given as that many arrays.
    """
    arrays = [a for arg in args for a in (arg if isinstance(arg, tuple) else (arg,))]
    with np.errstate(all="ignore"):
        result = node.op.reference(*arrays)
    if wide:
        return tuple(map(_widened, result)) if isinstance(result, tuple) else _widened(result)
    kinds = (node.type,) if isinstance(node.type, TensorType) else node.type.items
    for kind, array in zip(kinds, result if isinstance(result, tuple) else (result,), strict=True):
        if array.dtype != kind.dtype.numpy or not _fits(array.shape, kind):
            raise IRError(f"{node.op.name} evaluates to {array.dtype}{array.shape}, not {kind}")
    return result


def _fits(shape: tuple[int, ...], kind: TensorType) -> bool:
    if len(shape) != kind.rank:
        return False
    return all(not isinstance(d, int) or d == n for d, n in zip(kind.shape, shape, strict=True))


def _widened(array: Array) -> Array:
    """f64 for any narrower float (bf16 of ml_dtypes has kind V)."""
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return array.astype(np.float64) if is_float else array
