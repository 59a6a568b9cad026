"""Where nodes made by rules come from: they inherit the ONNX nodes of what they replace."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from unistack_aot.aicf.graph import Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Constant, Input

REACH = 64  # nodes looked at on either side; rules replace small pieces


def inherit(origins: Origins, fresh: Node, old: Node) -> None:
    """Nodes of `fresh` without an origin take the labels of the nodes of `old` that vanish."""
    made = _made(origins, fresh)
    if not made or fresh.op == old.op:
        origins.merge(fresh, [old])
        return
    border = {arg for node in made for arg in node.args if not _leaf(arg)} - set(made)
    gone = list(_walk(old, border)) if border else [old]
    labels = list(dict.fromkeys(label for node in reversed(gone) for label in origins.of(node)))
    for node in made:
        if labels:
            origins.add(node, labels)


def _made(origins: Origins, fresh: Node) -> list[Node]:
    """The nodes at the top of `fresh` that have no origin yet."""
    found: list[Node] = []
    stack = [fresh]
    while stack and len(found) < REACH:
        node = stack.pop()
        if node not in found and not _leaf(node) and not origins.of(node):
            found.append(node)
            stack.extend(node.args)
    return found


def _leaf(node: Node) -> bool:
    return isinstance(node.op, Constant | Input)


def _walk(root: Node, stop: set[Node]) -> Iterator[Node]:
    """Nodes from `root` downwards, nearest first, not past `stop` and leaves."""
    seen, queue = {root}, deque([root])
    while queue and len(seen) <= REACH:
        node = queue.popleft()
        yield node
        for arg in node.args:
            if arg not in seen and arg not in stop and not _leaf(arg):
                seen.add(arg)
                queue.append(arg)
