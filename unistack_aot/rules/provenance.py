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
    made = [n for n in _walk(fresh, frozenset()) if not origins.of(n) and not _leaf(n)]
    if not made:
        origins.merge(fresh, [old])
        return
    border = frozenset(arg for node in made for arg in node.args) - set(made)
    border = frozenset(node for node in border if not _leaf(node))
    gone = list(_walk(old, border)) if border else [old]
    labels = list(dict.fromkeys(label for node in reversed(gone) for label in origins.of(node)))
    for node in made:
        if labels:
            origins.add(node, labels)


def _leaf(node: Node) -> bool:
    return isinstance(node.op, Constant | Input)


def _walk(root: Node, stop: frozenset[Node]) -> Iterator[Node]:
    """Nodes from `root` downwards, nearest first, not past `stop` and leaves."""
    seen, queue = {root}, deque([root])
    while queue and len(seen) <= REACH:
        node = queue.popleft()
        yield node
        for arg in node.args:
            if arg not in seen and arg not in stop and not _leaf(arg):
                seen.add(arg)
                queue.append(arg)
