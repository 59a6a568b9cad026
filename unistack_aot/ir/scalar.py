"""Scalar expressions: the formulas of pointwise ops and the values that loops store. Not here: loops, tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import TypeAlias

from unistack_aot.base.dtypes import DType, bool_, i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Sym,
    Symbol,
    of_atom,
    substitute,
    symbol,
    symbols,
    terms,
)
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.interned import Interned

Number: TypeAlias = int | float | bool


class Scalar(Interned):
    """One typed scalar value; a closed set of seven kinds."""

    __slots__ = ()
    dtype: DType

    def __add__(self, other: Operand) -> Scalar:
        return call("add", self, other)

    def __radd__(self, other: Operand) -> Scalar:
        return call("add", literal_like(other, self), self)

    def __sub__(self, other: Operand) -> Scalar:
        return call("sub", self, other)

    def __rsub__(self, other: Operand) -> Scalar:
        return call("sub", literal_like(other, self), self)

    def __mul__(self, other: Operand) -> Scalar:
        return call("mul", self, other)

    def __rmul__(self, other: Operand) -> Scalar:
        return call("mul", literal_like(other, self), self)

    def __truediv__(self, other: Operand) -> Scalar:
        return call("div", self, other)

    def __rtruediv__(self, other: Operand) -> Scalar:
        return call("div", literal_like(other, self), self)

    def __neg__(self) -> Scalar:
        return call("neg", self)

    def __lt__(self, other: Operand) -> Scalar:
        return call("lt", self, other)

    def __le__(self, other: Operand) -> Scalar:
        return call("le", self, other)

    def __gt__(self, other: Operand) -> Scalar:
        return call("lt", literal_like(other, self), self)

    def __ge__(self, other: Operand) -> Scalar:
        return call("le", literal_like(other, self), self)


Operand: TypeAlias = Scalar | int | float | bool


class Arg(Scalar):
    """Operand number `index` of a pointwise formula."""

    __slots__ = ("index", "dtype")
    index: int


class Lit(Scalar):
    """A literal; `value` is an int for integer dtypes, a float for floats, a bool for bool."""

    __slots__ = ("value", "dtype")
    value: Number


class Call(Scalar):
    """A function of `ir/functions.py` applied to scalars."""

    __slots__ = ("fn", "args", "dtype")
    fn: str
    args: tuple[Scalar, ...]


class Cast(Scalar):
    """Conversion to `dtype` with the meaning of ONNX Cast."""

    __slots__ = ("value", "dtype")
    value: Scalar


class Index(Scalar):
    """An integer index expression (over loop variables and dimensions) used as an i64 value."""

    __slots__ = ("dim", "dtype")
    dim: Dim


class Load(Scalar):
    """The element of `buffer` at `index`; an index entry is a Dim or, if data-dependent, an i64 Scalar."""

    __slots__ = ("buffer", "index", "dtype")
    buffer: str
    index: tuple[IndexEntry, ...]


class Name(Scalar):
    """A value bound by a Let, a Fold state or a tile element inside a kernel."""

    __slots__ = ("name", "dtype")
    name: str


IndexEntry: TypeAlias = int | Sym | Scalar


def literal(value: Number, dtype: DType) -> Lit:
    """The literal `value` in `dtype`, normalised so that equal values intern to one node."""
    if dtype is bool_:
        return Lit(bool(value), dtype)
    return Lit(float(value) if dtype.is_float else int(value), dtype)


def literal_like(value: Operand, like: Scalar) -> Scalar:
    """`value` itself if it is a Scalar, else a literal of the dtype of `like`."""
    return value if isinstance(value, Scalar) else literal(value, like.dtype)


def index_value(dim: Dim) -> Scalar:
    """An index expression as an i64 scalar."""
    return literal(dim, i64) if isinstance(dim, int) else Index(dim, i64)


def call(fn: str, *args: Operand) -> Scalar:
    """Apply a scalar function; plain numbers take the dtype of the first Scalar argument that is not a condition."""
    function = FUNCTIONS[fn]
    typed = [a for a in args if isinstance(a, Scalar)]
    if not typed:
        raise IRError(f"{fn} needs at least one typed operand")
    if len(args) != function.arity:
        raise IRError(f"{fn} takes {function.arity} operands, got {len(args)}")
    like = typed[-1] if fn == "where" else typed[0]
    operands = tuple(literal_like(a, like) for a in args)
    dtype = function.result([a.dtype for a in operands])
    if dtype is None:
        raise IRError(f"{fn} is not defined for {', '.join(a.dtype.name for a in operands)}")
    return Call(fn, operands, dtype)


def cast(dtype: DType, value: Scalar) -> Scalar:
    """`value` converted to `dtype`; no node if it has that dtype already."""
    return value if value.dtype is dtype else Cast(value, dtype)


def children(value: Scalar) -> tuple[Scalar, ...]:
    """Direct scalar operands, index scalars of loads included."""
    match value:
        case Call():
            return value.args
        case Cast():
            return (value.value,)
        case Load():
            return tuple(entry for entry in value.index if isinstance(entry, Scalar))
        case _:
            return ()


def postorder(*roots: Scalar) -> Iterator[Scalar]:
    """Every distinct subexpression once, operands before users, without recursion."""
    seen: set[Scalar] = set()
    stack: list[tuple[Scalar, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        value, ready = stack.pop()
        if ready:
            yield value
        elif value not in seen:
            seen.add(value)
            stack.append((value, True))
            stack.extend((child, False) for child in reversed(children(value)))


def loads(value: Scalar) -> tuple[Load, ...]:
    """Distinct loads inside `value` in evaluation order."""
    return tuple(v for v in postorder(value) if isinstance(v, Load))


def index_symbols(value: Scalar) -> frozenset[str]:
    """Loop variables and dimension symbols that `value` depends on through indices."""
    found: set[str] = set()
    for node in postorder(value):
        if isinstance(node, Index):
            found |= symbols(node.dim)
        elif isinstance(node, Load):
            for entry in node.index:
                if not isinstance(entry, Scalar):
                    found |= symbols(entry)
    return frozenset(found)


def rebuild(value: Scalar, operands: tuple[Scalar, ...]) -> Scalar:
    """The same node kind over new operands (as listed by `children`)."""
    match value:
        case Call():
            return Call(value.fn, operands, value.dtype)
        case Cast():
            return cast(value.dtype, operands[0])
        case Load():
            rest = iter(operands)
            index = tuple(next(rest) if isinstance(e, Scalar) else e for e in value.index)
            return Load(value.buffer, index, value.dtype)
        case _:
            return value


def transform(value: Scalar, change: Callable[[Scalar], Scalar | None]) -> Scalar:
    """Rewrite bottom-up: `change` sees each node over already rewritten operands; None keeps it."""
    done: dict[Scalar, Scalar] = {}
    for node in postorder(value):
        fresh = rebuild(node, tuple(done[c] for c in children(node)))
        changed = change(fresh)
        done[node] = fresh if changed is None else changed
    return done[value]


def apply_formula(formula: Scalar, args: tuple[Scalar, ...]) -> Scalar:
    """Replace the formula's `Arg`s by the given scalars."""
    return transform(formula, lambda v: args[v.index] if isinstance(v, Arg) else None)


def substitute_indices(value: Scalar, env: Mapping[str, IndexEntry]) -> Scalar:
    """Replace index symbols by other index expressions or by data-dependent scalars."""
    dims = {k: v for k, v in env.items() if not isinstance(v, Scalar)}
    data = {k: v for k, v in env.items() if isinstance(v, Scalar)}

    def entry(old: IndexEntry) -> IndexEntry:
        if isinstance(old, Scalar):
            return old
        if data and symbols(old) & data.keys():
            return dim_to_scalar(old, env)
        return substitute(old, dims)

    def change(node: Scalar) -> Scalar | None:
        if isinstance(node, Index):
            fresh = entry(node.dim)
            return fresh if isinstance(fresh, Scalar) else index_value(fresh)
        if isinstance(node, Load):
            return Load(node.buffer, tuple(entry(e) for e in node.index), node.dtype)
        return None

    return transform(value, change)


def dim_to_scalar(dim: Dim, env: Mapping[str, IndexEntry]) -> Scalar:
    """An index expression as i64 scalar arithmetic, with symbols of `env` replaced; others stay index values."""
    const, parts = terms(dim)
    plain: Dim = const
    result: Scalar | None = None
    for coefficient, atom in parts:
        if not atom.symbols & env.keys():
            plain = plain + of_atom(atom) * coefficient
            continue
        term = _atom_to_scalar(atom, env) * coefficient
        result = term if result is None else result + term
    if result is None:
        return index_value(plain)
    return result if isinstance(plain, int) and plain == 0 else result + index_value(plain)


def _atom_to_scalar(atom: Atom, env: Mapping[str, IndexEntry]) -> Scalar:
    def inner(part: Dim) -> Scalar:
        return dim_to_scalar(part, env)

    match atom:
        case Symbol(name):
            found = env.get(name, symbol(name))
            return found if isinstance(found, Scalar) else index_value(found)
        case Product(factors):
            return reduce(lambda a, b: a * b, (_atom_to_scalar(f, env) for f in factors))
        case FloorDiv(numerator, denominator):
            quotient, rest = inner(numerator), inner(denominator)
            return (quotient - call("mod", quotient, rest)) / rest
        case Mod(value, divisor):
            return call("mod", inner(value), inner(divisor))
        case Min(args):
            return reduce(lambda a, b: call("min", a, b), map(inner, args))
        case Max(args):
            return reduce(lambda a, b: call("max", a, b), map(inner, args))


def where(condition: Scalar, yes: Operand, no: Operand) -> Scalar:
    """`yes` where `condition` holds, else `no`; the unused side is not observable."""
    return call("where", condition, yes, no)


def true() -> Scalar:
    """The boolean literal true."""
    return literal(True, bool_)


def all_of(*conditions: Scalar) -> Scalar:
    """Conjunction; no conditions give true."""
    result: Scalar | None = None
    for condition in conditions:
        result = condition if result is None else call("and", result, condition)
    return true() if result is None else result
