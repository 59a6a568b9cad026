"""Names of values while importing: graphs, regions, functions. Not here: node order (order.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from unistack_aot.aicf.graph import Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import ArrayData, Constant, Input
from unistack_aot.base.errors import BadModel
from unistack_aot.base.symbolic import Dim, Ranges
from unistack_aot.onnx_in.demands import Demand
from unistack_aot.onnx_in.dims import DimTable, as_ranges
from unistack_aot.onnx_in.fold import Folder
from unistack_aot.onnx_in.tensors import read_tensor
from unistack_aot.ops.core import Extents


@dataclass(frozen=True)
class Gap:
    """One reason why a model cannot be compiled: a node or input, what about it, a way out."""

    node: str
    op: str
    version: int
    reason: str
    hint: str

    @property
    def what(self) -> str:
        """`Resize(13) with cubic mode`; without an operator only the reason."""
        return f"{self.op}({self.version}) {self.reason}".strip() if self.op else self.reason


@dataclass
class Session:
    """What one import shares between all scopes."""

    folder: Path | None
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto]
    table: DimTable
    weights: dict[str, Node]
    origins: Origins = field(default_factory=Origins)
    folding: Folder = field(default_factory=Folder)
    gaps: list[Gap] = field(default_factory=list)
    demands: dict[Dim, Demand] = field(default_factory=dict)
    seen: set[Node] = field(default_factory=set)
    live: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()

    @property
    def ranges(self) -> Ranges:
        """What is known of the symbolic dimensions so far."""
        return as_ranges(self.table)

    def trace(self, node: Node, label: str) -> None:
        """Note that `node`, and every node below it met for the first time, comes from `label`."""
        self.origins.add(node, (label,))
        stack = [node]
        while stack:
            each = stack.pop()
            if each not in self.seen:
                self.seen.add(each)
                if not isinstance(each.op, Constant | Input):
                    self.origins.add(each, (label,))
                stack += each.args


@dataclass
class Scope:
    """Values by name; None stands for one that could not be imported (the gaps say why).

    `omitted` are inputs of a function that its call leaves out. A `closed` scope is a region: what it
    takes from its parent becomes an input of its own, noted in `captured`.
    """

    session: Session
    opsets: Mapping[str, int]
    parent: Scope | None = None
    closed: bool = False
    prefix: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[tuple[str, str, str], ...] = ()
    values: dict[str, Node | None] = field(default_factory=dict)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    omitted: frozenset[str] = frozenset()
    captured: dict[str, tuple[Node, Node]] = field(default_factory=dict)

    def find(self, name: str, user: str) -> Node | None:
        """The value called `name`; BadModel, at `user`, if there is none."""
        found = self._own(name)
        if found is not None or name in self.values:
            return found
        if self.parent is None:
            raise BadModel(
                f"value {name!r} is used but never defined",
                at=user,
                hint="the model is malformed; export it again",
            )
        outer = self.parent.find(name, user)
        if outer is None or not self.closed or isinstance(outer.op, Constant | Extents):
            return outer
        inner = Node(Input(name, outer.tensor))
        self.captured[name] = (outer, inner)
        self.values[name] = inner
        return inner

    def define(self, name: str, value: Node | None, label: str) -> None:
        """Give a node's result its name; BadModel if an input or initializer has that name."""
        if name in self.initializers or (name in self.values and name not in self.captured):
            raise BadModel(
                f"value {name!r} is defined by a node, and by an input or initializer",
                at=label,
                hint="names of values must be unique; export the model again",
            )
        self.values[name] = value

    def _own(self, name: str) -> Node | None:
        if name not in self.values and name in self.initializers:
            self.values[name] = self._constant(name)
        return self.values.get(name)

    def _constant(self, name: str) -> Node:
        """An initializer; the model's own are shared between imports that start again."""
        shared = self.session.weights if self.parent is None and not self.calls else {}
        if name not in shared:
            array = read_tensor(self.initializers[name], self.session.folder, name)
            shared[name] = Node(Constant(ArrayData.of(array)))
        return shared[name]

    def inside(self, closed: bool, prefix: str) -> Scope:
        """A scope for a region of a node of this one."""
        return Scope(self.session, self.opsets, self, closed, prefix, self.attributes, self.calls)
