"""What became of a model's nodes that no kernel computes: one reason each. Not here: origins (provenance.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Constant, Input, Op
from unistack_aot.ops.core import Extents

REACH = 64  # nodes looked at below a replaced one; rules replace small pieces
UNUSED = "no output needs it"
CONSTANT = "its value is known when compiling"
SIZES = "computed from the sizes of the inputs, by no kernel"
VIEW = "the same bytes under another shape: no kernel"

_DATA = frozenset({Constant, Extents})
_OTHER = frozenset({Op})


def fates(
    names: Iterable[str],
    unused: Iterable[str],
    graph: Graph,
    origins: Origins,
    firings: Iterable[tuple[str, Node]],
    lowered: frozenset[str],
) -> dict[str, str]:
    """By ONNX node: why no kernel may be there that computes it; nothing of a node without a trace.

    `graph` is what the rules left, `firings` what they replaced, `lowered` the nodes that have
    kernels of their own before scheduling.
    """
    found = dict.fromkeys(unused, UNUSED)
    traced = _kinds(origins.names, origins)
    left = _kinds(graph.nodes(), origins)
    replaced = _replaced(firings, frozenset(graph.nodes()), origins)
    for name in names:
        if name in found:
            continue
        if name in lowered:
            found[name] = VIEW
        elif left.get(name, _OTHER) <= _DATA:
            found[name] = _known(left[name])
        elif name in replaced:
            found[name] = f"rule {replaced[name]}"
        elif name in traced:
            found[name] = _known(traced[name])
    return found


def _known(kinds: frozenset[type]) -> str:
    """The reason for a node of which only values of these kinds are left."""
    if kinds == frozenset({Extents}):
        return SIZES
    return CONSTANT if kinds <= _DATA else UNUSED


def _kinds(nodes: Iterable[Node], origins: Origins) -> dict[str, frozenset[type]]:
    """The classes of operation that each ONNX node is found on."""
    found: dict[str, set[type]] = {}
    for node in nodes:
        for name in origins.of(node):
            found.setdefault(name, set()).add(type(node.op))
    return {name: frozenset(kinds) for name, kinds in found.items()}


def _replaced(
    firings: Iterable[tuple[str, Node]], kept: frozenset[Node], origins: Origins
) -> Mapping[str, str]:
    """By ONNX node: the last rule that replaced a value of it."""
    found: dict[str, str] = {}
    for rule, old in firings:
        for node in _gone(old, kept):
            found.update(dict.fromkeys(origins.of(node), rule))
    return found


def _gone(root: Node, kept: frozenset[Node]) -> Iterator[Node]:
    """The replaced node and what vanished with it, nearest first."""
    seen, queue = {root}, deque([root])
    while queue and len(seen) <= REACH:
        node = queue.popleft()
        if node in kept or isinstance(node.op, Input):
            continue
        yield node
        for arg in node.args:
            if arg not in seen:
                seen.add(arg)
                queue.append(arg)
