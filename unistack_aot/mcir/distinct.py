"""Whether different iterations touch different elements: index variables that an address determines.

Facts used: if all terms of a sum are known apart (each coefficient exceeds what the smaller terms can reach), a known
sum makes every term known; and x // m with x % m makes x known.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from unistack_aot.base.symbolic import (
    Atom,
    Dim,
    FloorDiv,
    Mod,
    Product,
    Ranges,
    Symbol,
    bounds,
    of_atom,
    simplify,
    symbol,
    terms,
)

MOST_TERMS = 12


def determined(known: Iterable[Dim], variables: Set[str], ranges: Ranges) -> frozenset[str]:
    """The variables whose values follow from the values of `known`; other symbols are fixed numbers."""
    work = [simplify(value, ranges) for value in known]
    facts: set[Dim] = set()
    while work:
        fresh = [v for v in work if v not in facts]
        facts.update(fresh)
        work = [part for v in fresh for part in _parts(v, facts, variables, ranges)]
        if not work:
            work = [w for w in _joined(facts, ranges) if w not in facts]
    return frozenset(name for name in variables if symbol(name) in facts)


def _parts(value: Dim, facts: set[Dim], variables: Set[str], ranges: Ranges) -> list[Dim]:
    """The moving terms of a known sum, as far as they are known apart."""
    _, found = terms(value)
    moving = [(c, a) for c, a in found if a.symbols & variables and of_atom(a) not in facts]
    if not moving or len(moving) > MOST_TERMS:
        return []
    if len(moving) == 1:
        return [of_atom(moving[0][1])]
    groups = _grouped(moving, variables)
    return _apart(groups, ranges)


def _grouped(moving: list[tuple[int, Atom]], variables: Set[str]) -> list[tuple[Dim, Dim]]:
    """(coefficient, variable part) of each term; a product's fixed factors belong to its coefficient."""
    groups: dict[Dim, Dim] = {}
    for c, atom in moving:
        fixed: Dim = c
        moved: Dim = 1
        for factor in atom.factors if isinstance(atom, Product) else (atom,):
            if factor.symbols & variables:
                moved = moved * of_atom(factor)
            else:
                fixed = fixed * of_atom(factor)
        groups[moved] = groups.get(moved, 0) + fixed
    return [(fixed, moved) for moved, fixed in groups.items()]


def _apart(groups: list[tuple[Dim, Dim]], ranges: Ranges) -> list[Dim]:
    """All variable parts if, in some order, each coefficient exceeds the reach of those before it; else none."""
    rest = list(groups)
    reach: Dim = 0
    done: list[Dim] = []
    while rest:
        chosen = next(
            (g for g in rest if _exceeds(g[0], reach, ranges) and _least(g, rest, ranges)), None
        )
        if chosen is None:
            return []
        rest.remove(chosen)
        done.append(chosen[1])
        span = _reach(chosen[1], ranges)
        if span is None:
            return done if not rest else []
        reach = reach + chosen[0] * span
    return done


def _exceeds(coefficient: Dim, reach: Dim, ranges: Ranges) -> bool:
    low, _ = bounds(coefficient - reach, ranges)
    return low is not None and low >= 1


def _least(group: tuple[Dim, Dim], rest: list[tuple[Dim, Dim]], ranges: Ranges) -> bool:
    """Whether a term may come next: no other has a provably smaller coefficient."""
    return not any(
        (low := bounds(group[0] - other[0], ranges)[0]) is not None and low >= 1
        for other in rest
        if other is not group
    )


def _reach(value: Dim, ranges: Ranges) -> Dim | None:
    """How far a value can move: highest minus lowest; symbolic where its range is."""
    _, found = terms(value)
    if len(found) == 1 and isinstance(found[0][1], Symbol) and value == of_atom(found[0][1]):
        low, high = ranges.get(found[0][1].name, (0, None))
        if high is not None and low is not None:
            return high - low
        return None
    if len(found) == 1 and isinstance(found[0][1], Mod) and value == of_atom(found[0][1]):
        return found[0][1].divisor - 1
    low_, high_ = bounds(value, ranges)
    return None if low_ is None or high_ is None else high_ - low_


def _joined(facts: set[Dim], ranges: Ranges) -> list[Dim]:
    """x for every known x % m whose x // m is known too."""
    found: list[Dim] = []
    for value in facts:
        _, parts = terms(value)
        if len(parts) != 1 or not isinstance(parts[0][1], Mod):
            continue
        mod = parts[0][1]
        if value != of_atom(mod):
            continue
        if _quotient_known(mod, facts, ranges):
            found.append(simplify(mod.value, ranges))
        found += _congruent(mod, facts, ranges)
    return found


def _congruent(mod: Mod, facts: set[Dim], ranges: Ranges) -> list[Dim]:
    """Every y for a known y // m and x % m, where m divides y - x whatever the variables are."""
    found: list[Dim] = []
    for value in facts:
        _, parts = terms(value)
        if (
            len(parts) != 1
            or not isinstance(parts[0][1], FloorDiv)
            or value != of_atom(parts[0][1])
        ):
            continue
        whole = parts[0][1].numerator
        if parts[0][1].denominator != mod.divisor or whole in facts:
            continue
        if simplify(_without_mods(whole - mod.value) % mod.divisor, ranges) == 0:
            found.append(simplify(whole, ranges))
    return found


def _without_mods(value: Dim) -> Dim:
    """The same number with x - m (x // m) for each x % m among its terms."""
    constant, parts = terms(value)
    total: Dim = constant
    for coefficient, atom in parts:
        part = of_atom(atom)
        if isinstance(atom, Mod):
            part = atom.value - atom.divisor * (atom.value // atom.divisor)
        total = total + coefficient * part
    return total


def _quotient_known(mod: Mod, facts: set[Dim], ranges: Ranges) -> bool:
    """Whether x // m is known for x % m: as such, or as y // (m n) where y // n is x."""
    if simplify(mod.value // mod.divisor, ranges) in facts:
        return True
    wanted = simplify(mod.value, ranges)
    for value in facts:
        _, parts = terms(value)
        if (
            len(parts) != 1
            or not isinstance(parts[0][1], FloorDiv)
            or value != of_atom(parts[0][1])
        ):
            continue
        whole, by = parts[0][1].numerator, parts[0][1].denominator
        if not isinstance(by, int) or not isinstance(mod.divisor, int) or by % mod.divisor:
            continue
        if simplify(whole // (by // mod.divisor), ranges) == wanted:
            return True
    return False
