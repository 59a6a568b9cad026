"""Symbolic dimensions of a graph replaced by numbers or expressions. Not here: evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import ArrayData, Input
from unistack_aot.base.dtypes import DType
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import (
    Dim,
    Sym,
    evaluate,
    linear_split,
    substitute,
    symbol,
    symbols,
    text,
)

T = TypeVar("T")


def bind_graph(graph: Graph, dims: Mapping[str, Dim]) -> Graph:
    """The graph with symbols replaced in every type and attribute, regions included."""
    done: dict[Node, Node] = {}
    for node in graph.inputs:
        done[node] = Node(bind_value(node.op, dims))
    for node in graph.nodes():
        if node not in done:
            done[node] = Node(bind_value(node.op, dims), tuple(done[arg] for arg in node.args))
    outputs = tuple((name, done[node]) for name, node in graph.outputs)
    return Graph(graph.name, tuple(done[node] for node in graph.inputs), outputs)


def bind_value(value: T, dims: Mapping[str, Dim]) -> T:
    """An attribute with symbols replaced: a dimension, or anything frozen that holds some."""
    found: Any = value
    match value:
        case Sym():
            found = substitute(value, dims)
        case Graph():
            found = bind_graph(value, dims)
        case tuple():
            items = tuple(bind_value(item, dims) for item in value)
            found = value if all(a is b for a, b in zip(items, value, strict=True)) else items
        case ArrayData() | DType() | type():
            pass
        case _ if is_dataclass(value) and not isinstance(value, type):
            changes: dict[str, Any] = {}
            for each in fields(value):
                old = getattr(value, each.name)
                new = bind_value(old, dims)
                if new is not old:
                    changes[each.name] = new
            found = replace(value, **changes) if changes else value
        case _:
            pass
    return found


def dims_of(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The symbols' values that actual input shapes determine; BadInput where they contradict."""
    found: dict[str, int] = {}
    pending: list[tuple[str, int, Dim, int]] = []
    for node in graph.inputs:
        if not isinstance(node.op, Input):
            continue
        label, declared = node.op.label, node.tensor.shape
        actual = shapes[label]
        if len(actual) != len(declared):
            raise BadInput(
                f"input {label} has {len(actual)} axes", hint=f"the model declares {node.tensor}"
            )
        for axis, (dim, size) in enumerate(zip(declared, actual, strict=True)):
            names = symbols(dim)
            for name in names:
                if dim is symbol(name):
                    found.setdefault(name, size)
            pending.append((label, axis, dim, size))
    for _, _, dim, size in pending:
        _solve(dim, size, found)
    for label, axis, dim, size in pending:
        if symbols(dim) <= found.keys() and evaluate(dim, found) != size:
            raise BadInput(
                f"input {label} has extent {size} on axis {axis}",
                hint=f"the model declares {text(dim)} there, which is {evaluate(dim, found)} here",
            )
    return found


def _solve(dim: Dim, size: int, found: dict[str, int]) -> None:
    """Learn the one unknown symbol of an extent such as 32*rows or past + 1."""
    unknown = symbols(dim) - found.keys()
    parts = linear_split(dim, next(iter(unknown))) if len(unknown) == 1 else None
    if parts is None:
        return
    factor, rest = evaluate(parts[0], found), evaluate(parts[1], found)
    if factor:
        found[next(iter(unknown))] = (size - rest) // factor
