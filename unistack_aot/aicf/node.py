"""The AICF node: an operation applied to nodes, interned and typed. Not here: what operations exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from weakref import WeakValueDictionary

from unistack_aot.aicf.op import Op
from unistack_aot.aicf.types import TensorType, Type
from unistack_aot.base.errors import IRError


class Node:
    """An immutable value: equal operation and equal arguments give the very same object.

    `type` comes from the operation's own `infer`; verification calls it again and compares.
    """

    __slots__ = ("op", "args", "type", "__weakref__")
    op: Op
    args: tuple[Node, ...]
    type: Type
    _table: ClassVar[WeakValueDictionary[tuple[Op, tuple[Node, ...]], Node]] = WeakValueDictionary()

    def __new__(cls, op: Op, args: tuple[Node, ...] = ()) -> Node:
        found = Node._table.get((op, args))
        if found is not None:
            return found
        self = object.__new__(cls)
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "type", op.infer(*(arg.type for arg in args)))
        Node._table[(op, args)] = self
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("nodes are immutable")

    @property
    def tensor(self) -> TensorType:
        """The type of a single-result node; a tuple must go through `item` first."""
        if not isinstance(self.type, TensorType):
            raise IRError(
                f"{self.op.name} has {len(self.type.items)} results; select one with item(value, k)"
            )
        return self.type

    def __repr__(self) -> str:
        return f"<{self.op.name} : {self.type}>"


def postorder(*roots: Node) -> Iterator[Node]:
    """Every distinct node once, arguments before users, without recursion."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args) if arg not in seen)
