"""Questions about expressions and substitution in them. Not here: ranges of symbols (ranges.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import gcd
from typing import cast

from .expr import (
    Dim,
    Sym,
    add,
    floordiv,
    maximum,
    minimum,
    modulo,
    multiply,
    of_atom,
    scale,
    sum_of,
    symbol,
    terms,
)
from .nodes import Atom, FloorDiv, Max, Min, Mod, Product, Symbol


def symbols(value: Dim) -> frozenset[str]:
    """The names of all symbols inside."""
    return frozenset() if isinstance(value, int) else value.symbols


def evaluate(value: Dim, env: Mapping[str, int]) -> int:
    """The value under env; KeyError for a symbol without a value."""
    if isinstance(value, int):
        return value
    total = value.const
    for c, atom in value.terms:
        if type(atom) is Symbol:
            total += c * env[atom.name]
        else:
            total += c * _evaluate_atom(atom, env)
    return total


def _evaluate_atom(atom: Atom, env: Mapping[str, int]) -> int:
    match atom:
        case Symbol(name):
            return env[name]
        case Product(factors):
            product = 1
            for factor in factors:
                product *= _evaluate_atom(factor, env)
            return product
        case FloorDiv(numerator, denominator):
            return evaluate(numerator, env) // evaluate(denominator, env)
        case Mod(inner, divisor):
            return evaluate(inner, env) % evaluate(divisor, env)
        case Min(args):
            return min(evaluate(arg, env) for arg in args)
        case Max(args):
            return max(evaluate(arg, env) for arg in args)


@lru_cache(1 << 14)
def compiled(value: Dim) -> Callable[[Mapping[str, int]], int]:
    """A function that does what evaluate does, several times faster; for use in loops."""
    source = f"lambda env: {_python(value)}"
    return cast("Callable[[Mapping[str, int]], int]", eval(source, {"__builtins__": _EXTREMES}))


_EXTREMES: dict[str, object] = {"min": min, "max": max}


def _python(value: Dim) -> str:
    if isinstance(value, int):
        return repr(value)
    parts = [repr(value.const)] if value.const else []
    parts += [
        _python_atom(atom) if c == 1 else f"{c}*{_python_atom(atom)}" for c, atom in value.terms
    ]
    return " + ".join(parts)


def _python_atom(atom: Atom) -> str:
    match atom:
        case Symbol(name):
            return f"env[{name!r}]"
        case Product(factors):
            return "*".join(map(_python_atom, factors))
        case FloorDiv(numerator, denominator):
            return f"(({_python(numerator)})//({_python(denominator)}))"
        case Mod(inner, divisor):
            return f"(({_python(inner)})%({_python(divisor)}))"
        case Min(args):
            return f"min({', '.join(map(_python, args))})"
        case Max(args):
            return f"max({', '.join(map(_python, args))})"


def substitute(value: Dim, env: Mapping[str, Dim]) -> Dim:
    """The expression with the symbols named in env replaced, all at once."""
    if isinstance(value, int) or value.symbols.isdisjoint(env):
        return value
    total = sum_of(value.const, tuple(t for t in value.terms if t[1].symbols.isdisjoint(env)))
    for c, atom in value.terms:
        if not atom.symbols.isdisjoint(env):
            total = add(total, scale(_substitute_atom(atom, env), c))
    return total


def _substitute_atom(atom: Atom, env: Mapping[str, Dim]) -> Dim:
    if atom.symbols.isdisjoint(env):
        return of_atom(atom)
    match atom:
        case Symbol(name):
            return env[name]
        case Product(factors):
            product: Dim = 1
            for factor in factors:
                product = multiply(product, _substitute_atom(factor, env))
            return product
        case FloorDiv(numerator, denominator):
            return floordiv(substitute(numerator, env), substitute(denominator, env))
        case Mod(inner, divisor):
            return modulo(substitute(inner, env), substitute(divisor, env))
        case Min(args):
            return minimum(*(substitute(arg, env) for arg in args))
        case Max(args):
            return maximum(*(substitute(arg, env) for arg in args))


def rename(value: Dim, names: Mapping[str, str]) -> Dim:
    """The expression with symbols renamed, all at once."""
    return substitute(value, {old: symbol(new) for old, new in names.items()})


def linear_split(value: Dim, name: str) -> tuple[Dim, Dim] | None:
    """(coeff, rest) with value == coeff * name + rest, both free of name; None if there is none."""
    if isinstance(value, int) or name not in value.symbols:
        return 0, value
    coeff: Dim = 0
    rest: Dim = value.const
    for c, atom in value.terms:
        if name not in atom.symbols:
            rest = add(rest, scale(of_atom(atom), c))
            continue
        beside = _beside(atom, name)
        if beside is None:
            return None
        coeff = add(coeff, scale(beside, c))
    return coeff, rest


def _beside(atom: Atom, name: str) -> Dim | None:
    """What multiplies the symbol in an atom that is linear in it."""
    match atom:
        case Symbol():
            return 1
        case Product(factors):
            beside: Dim = 1
            seen = 0
            for factor in factors:
                if isinstance(factor, Symbol) and factor.name == name:
                    seen += 1
                elif name in factor.symbols:
                    return None
                else:
                    beside = multiply(beside, of_atom(factor))
            return beside if seen == 1 else None
        case _:
            return None


def unrounded(value: Dim) -> Dim:
    """The value without what a tiled extent rounds: 16 * ((n + 15) // 16) is no more than n + 15."""
    const, parts = terms(value)
    result: Dim = const
    for factor, atom in parts:
        match atom:
            case FloorDiv(numerator, int() as by) if factor > 0 and factor % by == 0:
                result = result + numerator * (factor // by)
            case _:
                result = result + of_atom(atom) * factor
    return result


def is_linear_in(value: Dim, name: str) -> bool:
    """Whether value == coeff * name + rest with both free of name."""
    return linear_split(value, name) is not None


def coefficient(value: Dim, name: str) -> Dim:
    """The coefficient of a symbol; ValueError where the expression is not linear in it."""
    split = linear_split(value, name)
    if split is None:
        raise ValueError(f"{value} is not linear in {name}")
    return split[0]


def divisible(value: Dim, by: Dim) -> bool:
    """Whether value is provably a multiple of by for every value of the symbols (by not 0)."""
    if modulo(value, by) == 0:
        return True
    if isinstance(value, int) or isinstance(by, Sym):
        return False
    return value.const % by == 0 and all(
        c % by == 0 or _factor_gcd(atom) * c % by == 0 for c, atom in value.terms
    )


def _factor_gcd(atom: Atom) -> int:
    """A known positive divisor of an atom."""
    match atom:
        case Product(factors):
            known = 1
            for factor in factors:
                known *= _factor_gcd(factor)
            return known
        case Min(args) | Max(args):
            return _content(*args)
        case Mod(inner, int() as divisor):
            return _content(inner, divisor)
        case _:
            return 1


def _content(*values: Dim) -> int:
    """A positive number that divides every one of the expressions."""
    shared = 0
    for value in values:
        if isinstance(value, int):
            shared = gcd(shared, value)
        else:
            shared = gcd(shared, value.const, *(c * _factor_gcd(atom) for c, atom in value.terms))
    return shared or 1
