"""What sees a graph while rules change it, by verification level. Not here: rules, their driver (ir/rewrite.py).

From level 2 on the graph is verified after each pass of a phase. Level 3 also verifies what each
firing makes, and evaluates it beside what it replaces, on small sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from unistack_aot.aicf.bind import bind_graph
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.graph import Graph, rebuild
from unistack_aot.aicf.node import Node, postorder
from unistack_aot.aicf.op import Array, Input
from unistack_aot.aicf.text import describe
from unistack_aot.aicf.types import TensorType
from unistack_aot.aicf.verify import verify
from unistack_aot.base.errors import IRError, UnistackError
from unistack_aot.base.symbolic import Range, Ranges, symbols
from unistack_aot.ops.core import item
from unistack_aot.ops.reindex import static

EACH_PASS, EACH_FIRING = 2, 3
ELEMENTS = 1 << 20  # elements of all values together up to which two sides are evaluated
SIZES = ((3, 4, 5, 6), (4,), (8,), (16,), (1,), (64,))  # of symbols, in turn, until some fit
UNFIT = (UnistackError, ArithmeticError, IndexError, ValueError)
TOLERANCE = {8: 1e-4, 4: 1e-4, 2: 2e-2}  # relative to the greatest magnitude, by bytes per element


@dataclass
class Checks:
    """The checks of one graph's rules; `skipped` says which firings were not evaluated, and why."""

    level: int
    ranges: Ranges = field(default_factory=dict[str, Range])
    compared: Counter[str] = field(default_factory=Counter[str])
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def passed(self, graph: Graph, latest: str) -> None:
        """Verify what a pass has made, whose latest firing is named; IRError if it is no graph."""
        if self.level < EACH_PASS:
            return
        try:
            verify(graph)
        except IRError as fault:
            raise IRError(
                f"after a pass of rules, the latest {latest}: {fault.what}", at=fault.at
            ) from fault

    def fired(self, rule: str, old: Node, new: Node) -> None:
        """Verify and evaluate a replacement; IRError if it is not what it replaces."""
        if self.level < EACH_FIRING:
            return
        sides = sides_of(old, new)
        try:
            verify(sides)
            reason = self._differs(rule, sides)
        except IRError as fault:
            raise IRError(f"after rule {rule}: {fault.what}", at=describe(old)) from fault
        if reason:
            raise IRError(f"rule {rule} changes the value: {reason}", at=describe(old))

    def _differs(self, rule: str, sides: Graph) -> str:
        """How the two sides differ; nothing if they agree, or cannot be evaluated.

        What both sides use is replaced by free values first. A rule may know more of it than
        that (such as its sign): then only the whole graph below counts.
        """
        reason = compared(cut(sides), self.ranges)
        if isinstance(reason, str) and reason:
            reason = compared(sides, self.ranges)
        if isinstance(reason, Unfit):
            self.skipped.append((rule, reason.why))
            return ""
        self.compared[rule] += 1
        return reason


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why two sides were not evaluated."""

    why: str


def sides_of(old: Node, new: Node) -> Graph:
    """A graph of the inputs of `old` that gives both values; of several results, each."""
    pairs = ((old, new),)
    if not isinstance(old.type, TensorType):
        pairs = tuple((item(old, k), item(new, k)) for k in range(len(old.type.items)))
    inputs = tuple(node for node in postorder(old) if isinstance(node.op, Input))
    named = [
        (f"{side}{k}", node)
        for k, pair in enumerate(pairs)
        for side, node in zip(("old", "new"), pair, strict=True)
    ]
    return Graph("firing", inputs, tuple(named))


def cut(sides: Graph) -> Graph:
    """The sides over free inputs in place of the nodes that both use, as far as those vary."""
    olds, news = sides.results[::2], sides.results[1::2]
    both = set(postorder(*olds)) & set(postorder(*news))
    varies: set[Node] = set()
    free: dict[Node, Node] = {}
    for node in postorder(*olds):
        if isinstance(node.op, Input) or any(arg in varies for arg in node.args):
            varies.add(node)
            if node in both and isinstance(node.type, TensorType):
                free[node] = Node(Input(f"v{len(free)}", node.type))
    made = rebuild(sides, free)
    return Graph(made.name, tuple(n for n in made.nodes() if isinstance(n.op, Input)), made.outputs)


def compared(sides: Graph, ranges: Ranges) -> str | Unfit:
    """How `old` and `new` differ at the first sizes at which `old` has a value; nothing if not at all."""
    why = "no small sizes fit"
    for sizes in _bindings(sides, ranges):
        try:
            bound = bind_graph(sides, sizes)
            if _elements(bound) > ELEMENTS:
                why = f"it has more than {ELEMENTS} elements"
                continue
            feeds = dict(_feeds(bound))
            old = evaluate_graph(_half(bound, 0), feeds)
        except UNFIT as fault:
            why = fault.what if isinstance(fault, UnistackError) else str(fault)
            continue
        new = evaluate_graph(_half(bound, 1), feeds)
        return _difference(list(old.values()), list(new.values()))
    return Unfit(why)


def _half(sides: Graph, which: int) -> Graph:
    return Graph(sides.name, sides.inputs, sides.outputs[which::2])


def _bindings(sides: Graph, ranges: Ranges) -> Iterator[Mapping[str, int]]:
    """Small sizes of the symbols, inside their ranges."""
    shapes = [kind.shape for node in sides.nodes() for kind in _kinds(node)]
    names = sorted({name for shape in shapes for dim in shape for name in symbols(dim)})
    for sizes in SIZES:
        found: dict[str, int] = {}
        for k, name in enumerate(names):
            low, high = ranges.get(name, (1, None))
            size = max(low, sizes[k % len(sizes)]) if isinstance(low, int) else sizes[0]
            found[name] = min(size, high) if isinstance(high, int) else size
        yield found
        if not names:
            return


def _kinds(node: Node) -> tuple[TensorType, ...]:
    return (node.type,) if isinstance(node.type, TensorType) else node.type.items


def _elements(graph: Graph) -> int:
    """Elements of all values; IRError where an extent has no number."""
    total = 0
    for node in graph.nodes():
        for kind in _kinds(node):
            extents = [d for d in kind.shape if isinstance(d, int)]
            if len(extents) < kind.rank:
                raise IRError(f"{kind} has no size")
            total += prod(extents)
    return total


def _feeds(graph: Graph) -> Iterator[tuple[str, Array]]:
    """Seeded values: normal floats, and integers so small that they are indices anywhere."""
    for k, node in enumerate(graph.inputs):
        assert isinstance(node.op, Input)
        rng, kind = np.random.default_rng(k), node.tensor
        shape = static(kind.shape, "extents")
        drawn = rng.standard_normal(shape) if kind.dtype.is_float else rng.integers(0, 2, shape)
        yield node.op.label, np.asarray(drawn).astype(kind.dtype.numpy)


def _difference(old: Sequence[Array], new: Sequence[Array]) -> str:
    for before, after in zip(old, new, strict=True):
        if before.shape != after.shape or before.dtype != after.dtype:
            return f"{after.dtype}{after.shape} in place of {before.dtype}{before.shape}"
        wide, got = np.asarray(before, np.float64), np.asarray(after, np.float64)
        finite = np.isfinite(wide)
        if not np.array_equal(wide[~finite], got[~finite], equal_nan=True):
            return "NaN or infinity in other places"
        error = float(np.abs(got[finite] - wide[finite]).max(initial=0))
        scale = max(1e-6, float(np.abs(wide[finite]).max(initial=0)))
        exact = before.dtype.kind in "biu"
        allowed = 0.0 if exact else TOLERANCE[before.dtype.itemsize] * scale
        if not error <= allowed:
            return f"the greatest error is {error:.3g}, beside values up to {scale:.3g}"
    return ""
