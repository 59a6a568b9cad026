"""Where nodes made by rules come from: they inherit the ONNX nodes of what they replace."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from itertools import islice

from unistack_aot.aicf.graph import Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Constant, Input

REACH = 64  # nodes that one firing makes or consumes; rules replace small pieces
SEEN = 1024  # nodes looked at below a root to tell what both sides share


def inherit(origins: Origins, fresh: Node, old: Node) -> None:
    """What only `fresh` is made of takes the labels of what only `old` is made of.

    Where nothing is made, what stays stands for `old` too.
    """
    kept, before = set(_below(fresh, (), SEEN)), set(_below(old, (), SEEN))
    gone = list(_below(old, kept, REACH)) or [old]
    labels = list(dict.fromkeys(label for node in reversed(gone) for label in origins.of(node)))
    if not labels:
        return
    made = list(_below(fresh, before, REACH))
    for node in made:
        origins.add(node, labels)
    if not made:
        origins.merge(fresh, [old])


def rebuilt(origins: Origins, fresh: Node, old: Node) -> None:
    """The same operation over operands that were replaced."""
    origins.merge(fresh, [old])


def _below(root: Node, stop: Container[Node], most: int) -> Iterator[Node]:
    """Nodes from `root` downwards, nearest first, without leaves and what is in `stop`."""
    return islice(_walk(root, stop), most)


def _walk(root: Node, stop: Container[Node]) -> Iterator[Node]:
    if root in stop or isinstance(root.op, Constant | Input):
        return
    seen, queue = {root}, deque([root])
    while queue:
        node = queue.popleft()
        yield node
        for arg in node.args:
            if arg not in seen and arg not in stop and not isinstance(arg.op, Constant | Input):
                seen.add(arg)
                queue.append(arg)
