"""What one merge of a fold costs: its operations, and how many of them wait for each other.

Not here: how often a fold merges (core_work.py).
"""

from __future__ import annotations

from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import Call, Name, Scalar, children, postorder
from unistack_aot.mcir.monoids import MONOIDS
from unistack_aot.mcir.nodes import Fold
from unistack_aot.schedule.core_terms import issued


def merge_cost(fold: Fold) -> float:
    """Operations of one merge of the monoid."""
    return sum(issued(n.fn) for n in postorder(*merge(fold)) if isinstance(n, Call))


def chain_of(fold: Fold) -> float:
    """Dependent operations from a state to the same state one merge later."""
    longest = 0.0
    for k, result in enumerate(merge(fold)):
        depth: dict[Scalar, float] = {}
        for node in postorder(result):
            own = FUNCTIONS[node.fn].cost if isinstance(node, Call) else 0.0
            below = [depth[c] for c in children(node) if depth[c] >= 0]
            started = isinstance(node, Name) and node.name == f"a{k}"
            depth[node] = 0.0 if started else max(below) + own if below else -1.0
        longest = max(longest, depth[result])
    return longest


def merge(fold: Fold) -> tuple[Scalar, ...]:
    """The new state from the old one (names a0, a1, ...) and one lifted element (b0, ...)."""
    monoid = MONOIDS[fold.monoid]
    kinds = tuple(v.dtype for v in fold.values)
    fields = monoid.fields(kinds)
    old = tuple(Name(f"a{k}", d) for k, d in enumerate(fields))
    fresh = tuple(Name(f"b{k}", d) for k, d in enumerate(kinds))
    return monoid.merge(old, monoid.lift(fresh))
