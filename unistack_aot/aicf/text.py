"""AICF as text: one value per line, large constants by hash. Not here: reading it (parse.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, ArrayData, Constant, Input, snake_case
from unistack_aot.base.dtypes import ALL, DType
from unistack_aot.base.symbolic import Sym, text

LITERAL = 8  # elements up to which a constant is written out
SHORT = 16  # characters of a digest by which text names a constant
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
RESERVED = frozenset(d.name for d in ALL) | {"true", "false", "none", "inf", "nan"}


def print_graph(graph: Graph, origins: Origins | None = None) -> str:
    """The text of a graph; with `origins`, comments name the ONNX nodes."""
    return "\n".join(_lines(graph, origins, ""))


def constants_of(graph: Graph) -> dict[str, Array]:
    """The arrays that the text of `graph` names by hash, regions included."""
    return {digest[:SHORT]: array for digest, array in arrays_of(graph).items()}


def arrays_of(graph: Graph) -> dict[str, Array]:
    """The constants of a graph and its regions by digest."""
    found: dict[str, Array] = {}
    pending = [graph]
    while pending:
        for node in pending.pop().nodes():
            if isinstance(node.op, Constant):
                found[node.op.data.digest] = node.op.data.array
            pending += [v for _, v in attributes(node.op) if isinstance(v, Graph)]
    return found


def short(data: ArrayData) -> str:
    """The hash by which text names a constant."""
    return data.digest[:SHORT]


def attributes(op: object) -> list[tuple[str, Any]]:
    """The fields of an operation that differ from their defaults, sorted by name."""
    assert is_dataclass(op)
    found = [(f.name, getattr(op, f.name), f.default) for f in fields(op)]
    return sorted((name, value) for name, value, default in found if not _is(value, default))


def _is(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default


def _lines(graph: Graph, origins: Origins | None, indent: str) -> list[str]:
    names = {
        node: f"%{label(node.op.label)}" for node in graph.inputs if isinstance(node.op, Input)
    }
    inputs = ", ".join(f"{names[node]}: {node.type}" for node in graph.inputs)
    lines = [f"{indent}graph {label(graph.name)}({inputs}) {{"]
    for node in graph.nodes():
        if node in names:
            continue
        names[node] = f"%{len(names) - len(graph.inputs)}"
        came = ", ".join(json.dumps(name) for name in origins.of(node)) if origins else ""
        note = f"  # from {came}" if came else ""
        lines.append(f"{indent}  {names[node]} = {_value(node, names.__getitem__, indent)}{note}")
    results = ", ".join(f"{label(name)}={names[node]}" for name, node in graph.outputs)
    return [*lines, f"{indent}  return {results}".rstrip(), f"{indent}}}"]


def _value(node: Node, name: Callable[[Node], str], indent: str) -> str:
    if isinstance(node.op, Constant):
        return f"constant {_literal(node.op.data)} : {node.type}"
    args = ", ".join(name(arg) for arg in node.args)
    parts = [f"{node.op.name}({args})"]
    parts += [f"{key}={written(value, indent)}" for key, value in attributes(node.op)]
    return f"{' '.join(parts)} : {node.type}"


def describe(node: Node) -> str:
    """One line that shows a node over the operations of its arguments: for messages."""

    def name(arg: Node) -> str:
        if isinstance(arg.op, Input):
            return f"%{label(arg.op.label)}: {arg.type}"
        return f"{arg.op.name}: {arg.type}"

    if isinstance(node.op, Input):
        return f"%{label(node.op.label)} : {node.type}"
    return _value(node, name, "")


def _literal(data: ArrayData) -> str:
    array = data.array
    if array.size > LITERAL:
        return f"#{short(data)}"
    values = [_number(x) for x in array.reshape(-1)]
    if array.dtype.kind == "f" and np.isnan(array).any() and not _plain_nans(array):
        return f"#{short(data)}"  # bits that decimal text does not keep, such as NaN payloads
    return values[0] if array.ndim == 0 else f"[{', '.join(values)}]"


def _plain_nans(array: Array) -> bool:
    plain = np.where(np.isnan(array), np.asarray(float("nan"), array.dtype), array)
    return plain.tobytes() == array.tobytes()


def _number(value: Any) -> str:
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return repr(plain) if isinstance(plain, int | float) else repr(float(value))


def label(name: str) -> str:
    """A name as it is, or quoted where it is no plain word."""
    return name if WORD.fullmatch(name) else json.dumps(name)


def written(value: Any, indent: str = "") -> str:
    """An attribute: number, word, quoted string, dimension, [list], or record(field=...)."""
    match value:
        case bool() | int() | float():
            return _number(value)
        case None:
            return "none"
        case str():
            return json.dumps(value)
        case DType():
            return value.name
        case Sym():
            return _dimension(value)
        case tuple():
            return f"[{', '.join(written(v, indent) for v in value)}]"
        case ArrayData():
            return f"array({_literal(value)}, {_kind(value)})"
        case Graph():
            return "\n".join(_lines(value, None, indent + "  ")).lstrip()
        case _ if is_dataclass(value) and not isinstance(value, type):
            body = ", ".join(f"{name}={written(v, indent)}" for name, v in attributes(value))
            return f"{snake_case(type(value).__name__)}({body})"
        case _:
            raise TypeError(f"{type(value).__name__} has no text form")


def _kind(data: ArrayData) -> str:
    return str(Constant(data).infer())


def _dimension(value: Sym) -> str:
    plain = text(value)
    return f"'{plain}'" if plain in RESERVED else plain


@dataclass(frozen=True)
class Found:
    """Where a node stands in a graph: the node, what it takes, who takes it."""

    node: Node
    users: tuple[Node, ...]

    def __str__(self) -> str:
        lines = [f"    {describe(arg)}" for arg in self.node.args]
        lines += [f"  > {describe(self.node)}"]
        return "\n".join([*lines, *(f"    {describe(user)}" for user in self.users)])
