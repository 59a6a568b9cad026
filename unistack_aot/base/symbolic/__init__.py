"""Integer expressions over named integers: symbolic dimensions and index arithmetic.

Not here: how an expression is spelled in C (codegen), what a symbol stands for (the IRs).
"""

from .expr import Dim, Sym, ceildiv, maximum, minimum, of_atom, symbol, terms, text
from .nodes import Atom, Factor, FloorDiv, Max, Min, Mod, Product, Symbol, Terms
from .notation import parse
from .query import (
    coefficient,
    compiled,
    divisible,
    evaluate,
    is_linear_in,
    linear_split,
    rename,
    substitute,
    symbols,
    unrounded,
)
from .ranges import Interval, Range, Ranges, bounds, simplify

__all__ = [
    "Atom",
    "Dim",
    "Factor",
    "FloorDiv",
    "Interval",
    "Max",
    "Min",
    "Mod",
    "Product",
    "Range",
    "Ranges",
    "Sym",
    "Symbol",
    "Terms",
    "bounds",
    "ceildiv",
    "coefficient",
    "compiled",
    "divisible",
    "evaluate",
    "is_linear_in",
    "linear_split",
    "maximum",
    "minimum",
    "of_atom",
    "parse",
    "rename",
    "simplify",
    "substitute",
    "symbol",
    "symbols",
    "terms",
    "text",
    "unrounded",
]
