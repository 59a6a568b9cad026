"""Whether 32 bits hold all indices of a kernel: whatever sizes dimensions take, or those that a demand names.

Not here: how indices are printed (dialect.py), when demands are checked (runtime/binding.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from unistack_aot.artifact.manifest import UNBOUNDED, Demand
from unistack_aot.base.symbolic import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Ranges,
    Symbol,
    bounds,
    evaluate,
    of_atom,
    symbol,
    symbols,
    terms,
    text,
    unrounded,
)
from unistack_aot.base.verdict import No
from unistack_aot.ir.scalar import Index, postorder
from unistack_aot.mcir.nodes import (
    Attend,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Loop,
    Span,
    Stmt,
    Stream,
)
from unistack_aot.mcir.transform import scalars, walk

MOST = (1 << 30) - (1 << 17)
"""Most elements and iterations that 32-bit indices number: the other half is for tiles that stick out of them."""
ROOM = 1 << 16
"""A kernel whose least sizes times this are more than `MOST` counts in 64 bits where a dimension is open."""


def narrowed(kernel: Kernel, ranges: Ranges) -> tuple[Dim, ...] | No:
    """The sizes that may not be more than `MOST` in any run, so that 32 bits hold all indices; none if all always fit.

    No where a declared range allows more, or where a size is not bounded by the extents of loops.
    """
    closed = {
        name: (low, UNBOUNDED if high is None else high) for name, (low, high) in ranges.items()
    }
    asked: dict[Dim, None] = {}
    for size in _sizes(kernel):
        if size is None:
            return No("an index is no sum of products of loop variables and dimensions")
        most = bounds(size, closed)[1]
        if most is not None and most <= MOST:
            continue
        low, top = bounds(size, ranges)
        least = {name: max(1, bounds(symbol(name), ranges)[0] or 0) for name in symbols(size)}
        if top is not None or max(low or 0, evaluate(size, least) * ROOM) > MOST:
            return No(f"{text(size)} may be {top or 'any number'}")
        asked[_plain(size)] = None
    return largest(asked, ranges)


def demand(size: Dim) -> Demand:
    """That a size fits 32 bits, and what to do where it does not."""
    names = sorted(symbols(size))
    words = " ".join(f"--dim {name}=1..N" for name in names)
    return Demand(
        text(MOST - size),
        f"the kernels count to {text(size)} in 32 bits, to {MOST} at most",
        f"compile with ranges of {', '.join(names)} that allow so many ({words}), for indices of 64 bits",
    )


def _plain(size: Dim) -> Dim:
    """A size that is as good, up to what `MOST` leaves: without roundings and small sums."""
    const, parts = terms(size)
    total: Dim = 0 if abs(const) < ROOM else const
    for factor, atom in parts:
        match atom:
            case FloorDiv(numerator, int() as by) if factor > 0:
                total = total + _plain(numerator) * -(-factor // by)
            case _:
                total = total + of_atom(atom) * factor
    return total


def largest(sizes: Iterable[Dim], ranges: Ranges) -> tuple[Dim, ...]:
    """The sizes without those that another one is never less than."""
    kept: list[Dim] = []
    for size in dict.fromkeys(sizes):
        if not any(_covers(other, size, ranges) for other in kept):
            kept = [each for each in kept if not _covers(size, each, ranges)]
            kept.append(size)
    return tuple(kept)


def _covers(one: Dim, other: Dim, ranges: Ranges) -> bool:
    low = bounds(one - other, ranges)[0]
    return low is not None and low >= 0


def _sizes(kernel: Kernel) -> Iterator[Dim | None]:
    """What 32 bits must hold: buffers, loops, and the index values that formulas use, which may be no address."""
    for param in kernel.params:
        yield param.layout.elements(param.shape)
    tops: dict[str, Dim | None] = {}
    for stmt in walk(kernel.body):
        for var, extent in _extents(stmt):
            yield from map(_half, _magnitudes(extent, tops))
            most = _magnitude(extent, tops)
            tops[var] = None if most is None else most - 1
        for value in scalars(stmt):
            for node in postorder(value):
                if isinstance(node, Index):
                    yield from map(_half, _magnitudes(node.dim, tops))


def _half(most: Dim | None) -> Dim | None:
    """Half a magnitude, rounded up term by term: nothing that is computed exceeds it, so it may be twice `MOST`."""
    if most is None:
        return None
    const, parts = terms(most)
    total: Dim = -(-const // 2)
    for factor, atom in parts:
        total = total + of_atom(atom) * -(-factor // 2)
    return total


def _extents(stmt: Stmt) -> Iterator[tuple[str, Dim]]:
    """The variables that a statement binds, and what they are less than."""
    spans: tuple[Span, ...] = ()
    match stmt:
        case Loop() | Stream():
            yield stmt.var, stmt.extent
        case Fold():
            yield from ((axis.var, axis.extent) for axis in stmt.axes)
        case Contract():
            spans = (stmt.rows, stmt.cols)
            yield from ((axis.var, axis.extent) for axis in stmt.depth)
        case Fill() | Drain():
            spans = (stmt.rows, stmt.cols)
        case Attend():
            spans = (stmt.rows,)
            axes = (stmt.keys, stmt.depth, stmt.values)
            yield from ((axis.var, axis.extent) for axis in axes)
        case _:
            pass
    yield from ((span.var, span.first + span.extent) for span in spans)


def _magnitudes(value: Dim, tops: Mapping[str, Dim | None]) -> Iterator[Dim | None]:
    """Bounds of all that is computed for an index value: of its parts, and of itself. None: no bound."""
    for _, atom in terms(value)[1]:
        for part in _inside(atom):
            yield from _magnitudes(part, tops)
    yield _magnitude(value, tops)


def _inside(atom: Atom) -> tuple[Dim, ...]:
    match atom:
        case Product(factors):
            return tuple(part for factor in factors for part in _inside(factor))
        case FloorDiv(numerator, denominator):
            return numerator, denominator
        case Mod(inner, divisor):
            return inner, divisor
        case Min(args) | Max(args):
            return args
        case Symbol():
            return ()


def _magnitude(value: Dim, tops: Mapping[str, Dim | None]) -> Dim | None:
    """A bound of the absolute value, of every partial sum too."""
    const, parts = terms(value)
    total: Dim = abs(const)
    for factor, atom in parts:
        most = _atom(atom, tops)
        if most is None:
            return None
        total = total + most * abs(factor)
    return unrounded(total)


def _atom(atom: Atom, tops: Mapping[str, Dim | None]) -> Dim | None:
    match atom:
        case Symbol(name):
            return tops[name] if name in tops else symbol(name)
        case Product(factors):
            return _product(factors, tops)
        case FloorDiv(numerator, denominator):
            most = _magnitude(numerator, tops)
            return (
                most // denominator if most is not None and isinstance(denominator, int) else most
            )
        case Mod(_, divisor):
            return _magnitude(divisor, tops)
        case Min(args):
            fixed = [arg for arg in args if isinstance(arg, int) and arg >= 0]
            return min(fixed) if fixed else _magnitude(args[0], tops)
        case Max(args):
            return _magnitude(sum(args), tops)


def _product(factors: tuple[Atom, ...], tops: Mapping[str, Dim | None]) -> Dim | None:
    """Factor by factor; no bound if one is a quotient by a dimension, of which only the dividend is known."""
    total: Dim = 1
    for factor in factors:
        most = _atom(factor, tops)
        if most is None or (
            isinstance(factor, FloorDiv)
            and not isinstance(factor.denominator, int)
            and not tops.keys().isdisjoint(factor.symbols)
        ):
            return None
        total = total * most
    return total
