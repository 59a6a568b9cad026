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
    """Dependent operations from a state to the same state one merge later.

    Vectors choose by a mask on the last operation of a branch, which costs nothing; what divides in a branch runs under
    the mask, and waits for it.
    """
    longest = 0.0
    for k, result in enumerate(merge(fold)):
        depth: dict[Scalar, float] = {}
        for node in postorder(result):
            own = _cost(node)
            below = [depth[c] for c in children(node) if depth[c] >= 0]
            if isinstance(node, Call) and node.fn == "where" and depth[node.args[0]] >= 0:
                below.append(depth[node.args[0]] + max(map(_from_division, node.args[1:])))
            started = isinstance(node, Name) and node.name == f"a{k}"
            depth[node] = 0.0 if started else max(below) + own if below else -1.0
        longest = max(longest, depth[result])
    return longest


def _cost(node: Scalar) -> float:
    """Operations of a node in a chain."""
    return FUNCTIONS[node.fn].cost if isinstance(node, Call) and node.fn != "where" else 0.0


def _from_division(value: Scalar) -> float:
    """The longest path of operations from a division to a value; 0 without one."""
    found: dict[Scalar, float] = {}
    for node in postorder(value):
        below = max((found[c] for c in children(node)), default=0.0)
        divides = isinstance(node, Call) and node.fn == "div"
        found[node] = below + _cost(node) if below or divides else 0.0
    return found[value]


def merge(fold: Fold) -> tuple[Scalar, ...]:
    """The new state from the old one (names a0, a1, ...) and one lifted element (b0, ...)."""
    monoid = MONOIDS[fold.monoid]
    kinds = tuple(v.dtype for v in fold.values)
    fields = monoid.fields(kinds)
    old = tuple(Name(f"a{k}", d) for k, d in enumerate(fields))
    fresh = tuple(Name(f"b{k}", d) for k, d in enumerate(kinds))
    return monoid.merge(old, monoid.lift(fresh))
