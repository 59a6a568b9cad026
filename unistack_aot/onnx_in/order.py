"""Which ONNX nodes an output needs, and in what order. Not here: what the nodes mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx

from unistack_aot.base.errors import BadModel

Numbered = tuple[int, onnx.NodeProto]


def label_of(index: int, node: onnx.NodeProto) -> str:
    """What errors and reports call a node: its name, or its type, number and first output."""
    first = next((name for name in node.output if name), "")
    return node.name or f"{node.op_type}_{index} ({first})"


def ordered(nodes: Sequence[onnx.NodeProto], results: Iterable[str]) -> list[Numbered]:
    """The nodes that `results` need, producers first, in the model's own order where it allows it.

    BadModel for two definitions of one value, and for cycles.
    """
    producers = _producers(nodes)
    needs = [_needed(node, producers) for node in nodes]
    finished: dict[int, None] = {}
    for name in results:
        if name in producers:
            _visit(producers[name], needs, finished, nodes)
    live = sorted(finished)
    sorted_already = all(need < index for index in live for need in needs[index])
    return [(index, nodes[index]) for index in (live if sorted_already else finished)]


def _producers(nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.output:
            if not name:
                continue
            if name in producers:
                first = label_of(producers[name], nodes[producers[name]])
                raise BadModel(
                    f"value {name!r} is defined by two nodes, first by {first!r}",
                    at=label_of(index, node),
                    hint="names of values must be unique; export the model again",
                )
            producers[name] = index
    return producers


def _needed(node: onnx.NodeProto, producers: dict[str, int]) -> list[int]:
    return list(dict.fromkeys(producers[name] for name in used_names(node) if name in producers))


def _visit(
    root: int,
    needs: Sequence[Sequence[int]],
    finished: dict[int, None],
    nodes: Sequence[onnx.NodeProto],
) -> None:
    """Depth first from one node, without recursion; `finished` gains nodes after what they need."""
    active: dict[int, Iterator[int]] = {}
    if root not in finished:
        active[root] = iter(needs[root])
    while active:
        index = next(reversed(active))
        need = next(active[index], None)
        if need is None:
            del active[index]
            finished[index] = None
        elif need in active:
            path = list(active)
            cycle = path[path.index(need) :]
            names = " -> ".join(label_of(k, nodes[k]) for k in (*cycle, need)[:6])
            raise BadModel(
                f"nodes form a cycle: {names}{' ...' if len(cycle) > 5 else ''}",
                at=label_of(need, nodes[need]),
                hint="a model's graph must have no cycles; use Loop or Scan",
            )
        elif need not in finished:
            active[need] = iter(needs[need])


def used_names(node: onnx.NodeProto) -> Iterator[str]:
    """Values that a node reads, those that its regions capture from outside included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            yield from _captured(graph)


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    inside = {value.name for value in graph.input}
    inside |= {tensor.name for tensor in graph.initializer}
    inside |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in used_names(node) if name not in inside)
    yield from (value.name for value in graph.output if value.name not in inside)
