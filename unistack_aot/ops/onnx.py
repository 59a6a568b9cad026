"""How ONNX operators become AICF: the importer registry and what an importer may ask. Not here: reading protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from numpy.typing import NDArray

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Op
from unistack_aot.base.errors import Unsupported
from unistack_aot.base.symbolic import Dim, Ranges, simplify
from unistack_aot.ops.known import known_dims, known_value

Importer: TypeAlias = Callable[["OnnxCall"], "Node | Sequence[Node]"]
T = TypeVar("T")


class Attributes(Mapping[str, Any]):
    """Attributes by name, which know whether they were asked for: one that nobody reads is refused."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        """The value; from now on it counts as read."""
        self._read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """The names of those given."""
        return iter(self._values)

    def __len__(self) -> int:
        """How many are given."""
        return len(self._values)

    @property
    def unread(self) -> dict[str, Any]:
        """Those that were given and never asked for."""
        return {name: v for name, v in self._values.items() if name not in self._read}


@dataclass(frozen=True)
class OnnxCall:
    """One ONNX node as its importer sees it: decoded attributes, argument nodes (None where omitted), opset.

    Region attributes (If, Loop, Scan bodies) arrive as `Subgraph`s.
    """

    op_type: str
    label: str
    opset: int
    args: tuple[Node | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    ranges: Ranges = field(default_factory=dict)
    needs: Callable[[Dim, Dim, str], None] = lambda extent, least, what: None

    def simple(self, dim: Dim) -> Dim:
        """An extent, simplified by what is known of the model's symbolic dimensions."""
        return simplify(dim, self.ranges)

    def at_least(self, extent: Dim, least: Dim, what: str) -> None:
        """Note that the node makes sense only where `extent` is at least `least`; `what` says why."""
        self.needs(extent, least, what)

    def arg(self, k: int) -> Node:
        """Argument `k`, which the operator requires."""
        found = self.optional(k)
        if found is None:
            raise Unsupported(
                f"without its input {k}",
                at=self.label,
                hint="the model is malformed",
            )
        return found

    def optional(self, k: int) -> Node | None:
        """Argument `k`, or None if it is omitted."""
        return self.args[k] if k < len(self.args) else None

    def attr(self, name: str, default: T) -> T:
        """An attribute, or `default`."""
        return self.attributes.get(name, default)

    def ignore(self, *names: str) -> None:
        """Say that attributes change nothing here, whatever they are."""
        for name in names:
            self.attributes.get(name)

    def constant(self, k: int) -> NDArray[Any] | None:
        """The compile-time value of argument `k`; None if omitted or not known."""
        node = self.optional(k)
        return None if node is None else known_value(node)

    def require_constant(self, k: int, what: str) -> NDArray[Any]:
        """The compile-time value of argument `k`, or a refusal that says `what` must be constant."""
        value = self.constant(k)
        if value is None:
            raise self.refuse(f"with {what} that is not constant", f"export with a constant {what}")
        return value

    def dims(self, k: int) -> tuple[Dim, ...] | None:
        """Argument `k` (an integer vector) as dimensions, symbolic ones included; None if not known."""
        node = self.optional(k)
        return None if node is None else known_dims(node)

    def require_dims(self, k: int, what: str) -> tuple[Dim, ...]:
        """Argument `k` as dimensions, or a refusal that says `what` depends on data."""
        found = self.dims(k)
        if found is None:
            raise self.refuse(
                f"with {what} that depends on data", f"export with a {what} computed from shapes"
            )
        return found

    def axes(self, k: int, attribute: str = "axes") -> tuple[int, ...] | None:
        """Axes given as attribute (old opsets) or as constant input `k` (new ones); None if absent."""
        if attribute in self.attributes:
            return tuple(int(a) for a in self.attributes[attribute])
        if self.optional(k) is None:
            return None
        return tuple(int(a) for a in self.require_constant(k, "axes").reshape(-1))

    def refuse(self, how: str, hint: str) -> Unsupported:
        """The refusal of this node; `how` continues "OpType(opset) ..."."""
        return Unsupported(f"{self.op_type}({self.opset}) {how}", at=self.label, hint=hint)


@dataclass(frozen=True)
class Subgraph:
    """A region attribute: `graph(types of formal inputs)` imports it as a closed Graph.

    Values it captures from outside become extra inputs after the formal ones; `captured` lists the outer nodes.
    `inline(formal inputs)` imports it in place instead: its results, over the outer nodes themselves.
    """

    build: Callable[[tuple[Node, ...]], tuple[Graph, tuple[Node, ...]]]
    inline: Callable[[tuple[Node, ...]], tuple[Node, ...]]


IMPORTERS: dict[tuple[str, str], list[tuple[int, Importer]]] = {}


def onnx(op_type: str, since: int = 1, domain: str = "") -> Callable[[T], T]:
    """Register an importer: a function of an OnnxCall, or an Op class without attributes whose operands are the inputs.

    The importer with the greatest `since` not above the model's opset is used.
    """

    def register(target: T) -> T:
        importer = _plain(target) if isinstance(target, type) else target
        versions = IMPORTERS.setdefault((domain, op_type), [])
        if any(version == since for version, _ in versions):
            raise TypeError(f"two importers of {op_type} since {since}")
        versions.append((since, importer))  # type: ignore[arg-type]
        versions.sort(key=lambda entry: entry[0])
        return target

    return register


def _plain(op: type) -> Importer:
    def importer(call: OnnxCall) -> Node:
        return Node(op(), tuple(call.arg(k) for k in range(len(call.args))))

    return importer


def importer_for(domain: str, op_type: str, opset: int) -> Importer | None:
    """The importer for this operator at this opset, or None."""
    domain = "" if domain == "ai.onnx" else domain
    found = [imp for since, imp in IMPORTERS.get((domain, op_type), []) if since <= opset]
    return found[-1] if found else None


def make(op: Op, *args: Node) -> Node:
    """Shorthand for `Node(op, args)`."""
    return Node(op, args)
