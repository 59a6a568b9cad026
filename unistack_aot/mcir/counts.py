"""What a kernel moves and computes, as expressions of the dimensions.

Not here: how long that takes (hw/roofline.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.base.symbolic import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Symbol,
    ceildiv,
    maximum,
    minimum,
    of_atom,
    substitute,
    symbols,
    terms,
)
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import Call, Load, Scalar, loads, postorder
from unistack_aot.mcir.nodes import (
    Attend,
    Axis,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Loop,
    Span,
    Stmt,
    Store,
    Stream,
    View,
)
from unistack_aot.mcir.transform import bound_vars, children, scalars, walk
from unistack_aot.mcir.winograd import FORMS, TAPS


@dataclass(frozen=True, slots=True)
class Counts:
    """Bytes read from and written to far memory, each element once, and floating-point operations of one launch."""

    read: Dim
    written: Dim
    flops: Dim

    @property
    def far_bytes(self) -> Dim:
        """Bytes both ways."""
        return self.read + self.written


def count(kernel: Kernel) -> Counts:
    """The counts of a kernel: a lower bound of traffic (caches hold what is read again), the work as written."""
    read: Dim = 0
    written: Dim = 0
    for (_, write), moved in traffic(kernel).items():
        read, written = (read, written + moved) if write else (read + moved, written)
    return Counts(read, written, _flops(kernel.body, 1, frozenset(bound_vars(kernel.body))))


def traffic(kernel: Kernel) -> dict[tuple[str, bool], Dim]:
    """Bytes of each parameter that a launch reads (False) and writes (True), each element once."""
    extents = _extents(kernel.body)
    touched: dict[tuple[str, bool], Dim] = {}
    for stmt in walk(kernel.body):
        for buffer, names, write in _accesses(stmt):
            points = _held(stmt, buffer, _points(names, extents))
            key = (buffer, write)
            old = touched.get(key)
            touched[key] = points if old is None else _larger(old, points)
    found: dict[tuple[str, bool], Dim] = {}
    for param in kernel.params:
        whole = param.layout.elements(param.shape)
        for write in (False, True):
            points = touched.get((param.name, write))
            if points is not None:
                found[param.name, write] = minimum(whole, points) * param.dtype.bytes
    return found


def _held(stmt: Stmt, buffer: str, points: Dim) -> Dim:
    """The elements that stand for so many of a sum: of transformed weights there are more than of taps."""
    form = FORMS.get(stmt.via) if isinstance(stmt, Contract) else None
    if form is None or not isinstance(stmt, Contract) or buffer != stmt.b.buffer:
        return points
    return points * form.points**2 // TAPS**2


def _larger(a: Dim, b: Dim) -> Dim:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else a if a == b else a + b


def _points(names: frozenset[str], extents: dict[str, Dim]) -> Dim:
    points: Dim = 1
    for name in sorted(names):
        points = points * extents.get(name, 1)
    return points


def _extents(body: tuple[Stmt, ...]) -> dict[str, Dim]:
    """How many values each bound index variable takes, the shorter last part of a tile counted as whole."""
    found: dict[str, Dim] = {}
    bound = frozenset(bound_vars(body))

    def add(axis: Axis | Span) -> None:
        total = whole(axis.extent, bound)
        if isinstance(
            axis, Span
        ):  # its values are absolute: it covers what the loops in `first` cover
            for name in sorted(symbols(axis.first) & found.keys()):
                total = total * found[name]
        found[axis.var] = total

    for stmt in walk(body):
        match stmt:
            case Loop() | Stream():
                found[stmt.var] = ceildiv(whole(stmt.extent, bound), stmt.step)
            case Fill():
                add(stmt.rows)
                add(stmt.cols)
            case Fold():
                for axis in stmt.axes:
                    add(axis)
            case Contract():
                for each in (stmt.rows, stmt.cols, *stmt.depth):
                    if each.var not in found:  # a fill has said which part of the whole it is
                        add(each)
            case Drain():
                add(stmt.rows)
                add(stmt.cols)
            case Attend():
                for each in (stmt.rows, stmt.keys, stmt.depth, stmt.values):
                    add(each)
            case _:
                pass
    return found


def _accesses(stmt: Stmt) -> list[tuple[str, frozenset[str], bool]]:
    found = [(load.buffer, _names(load), False) for v in scalars(stmt) for load in loads(v)]
    match stmt:
        case Store():
            names = [symbols(e) for e in stmt.index if not isinstance(e, Scalar)]
            found.append((stmt.buffer, frozenset[str]().union(*names), True))
        case Contract():
            found += [_view(stmt.a), _view(stmt.b)]
        case Fill():
            found.append(_view(stmt.source))
        case Attend():
            found += [_view(stmt.q), _view(stmt.k), _view(stmt.v)]
        case _:
            pass
    return found


def _view(view: View) -> tuple[str, frozenset[str], bool]:
    return view.buffer, frozenset[str]().union(*(symbols(e) for e in view.index)), False


def _names(load: Load) -> frozenset[str]:
    return frozenset[str]().union(*(symbols(e) for e in load.index if not isinstance(e, Scalar)))


def whole(extent: Dim, bound: frozenset[str]) -> Dim:
    """The extent of a full tile: an extent min(size, rest) that depends on loop variables counts as its size.

    One that has no limit but by loop variables counts as at their first values.
    """
    if not symbols(extent) & bound:
        return extent
    found = _end(extent, bound, 1)
    return substitute(extent, dict.fromkeys(bound, 0)) if found is None else found


def _end(value: Dim, bound: frozenset[str], side: int) -> Dim | None:
    """A bound from above (side 1) or below (-1) without loop variables, which start at 0; None: unknown."""
    if not symbols(value) & bound:
        return value
    total, parts = terms(value)
    for factor, atom in parts:
        end = _atom_end(atom, bound, side if factor > 0 else -side)
        if end is None:
            return None
        total = total + factor * end
    return total


def _atom_end(atom: Atom, bound: frozenset[str], side: int) -> Dim | None:
    if not atom.symbols & bound:
        return of_atom(atom)
    match atom:
        case Min(args) | Max(args):
            ends = [_end(arg, bound, side) for arg in args]
            known = [end for end in ends if end is not None]
            limits = isinstance(atom, Min) == (side > 0)  # one known operand limits the result
            if not known or (len(known) < len(ends) and not limits):
                return None
            return minimum(*known) if isinstance(atom, Min) else maximum(*known)
        case FloorDiv(numerator, denominator) if not symbols(denominator) & bound:
            end = _end(numerator, bound, side)
            return None if end is None else end // denominator
        case _:
            return 0 if side < 0 and isinstance(atom, Symbol) else None


def _flops(body: tuple[Stmt, ...], times: Dim, bound: frozenset[str]) -> Dim:
    total: Dim = 0
    for stmt in body:
        inside = times
        match stmt:
            case Loop() | Stream():
                inside = times * whole(stmt.extent, bound)
            case Fold():
                for axis in stmt.axes:
                    inside = inside * whole(axis.extent, bound)
                total = total + inside * (1 + round(sum(map(_cost, stmt.values))))
            case Contract():
                deep: Dim = 1
                for axis in stmt.depth:
                    deep = deep * whole(axis.extent, bound)
                rows, cols = whole(stmt.rows.extent, bound), whole(stmt.cols.extent, bound)
                total = total + times * 2 * rows * cols * deep
            case Drain():
                inside = times * whole(stmt.rows.extent, bound) * whole(stmt.cols.extent, bound)
            case Attend():
                rows = whole(stmt.rows.extent, bound)
                pairs = times * rows * stmt.keys.extent
                total = total + pairs * (2 * stmt.depth.extent + 2 * stmt.values.extent + 12)
                inside = times * rows * stmt.values.extent
            case _:
                total = total + times * round(sum(map(_cost, scalars(stmt))))
        for inner in children(stmt):
            total = total + _flops(inner, inside, bound)
    return total


def _cost(value: Scalar) -> float:
    return sum(
        FUNCTIONS[n.fn].cost for n in postorder(value) if isinstance(n, Call) and n.dtype.is_float
    )
