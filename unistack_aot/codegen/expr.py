"""Prints scalar and index expressions as C, naming shared subexpressions once. Not here: statements."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import assert_never

from unistack_aot.base.dtypes import DType, f32
from unistack_aot.base.errors import IRError
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
    simplify,
    symbol,
    terms,
)
from unistack_aot.codegen.ctree import Block, CNode, Line
from unistack_aot.codegen.dialect import Dialect
from unistack_aot.ir.scalar import (
    Arg,
    Call,
    Cast,
    Index,
    IndexEntry,
    Lit,
    Load,
    Name,
    Scalar,
    children,
    postorder,
)
from unistack_aot.mcir.layout import Layout

WRAPPING = {"add": "+", "sub": "-", "mul": "*", "neg": "-"}


class Addresses:
    """Where buffers lie: logical shape and layout per buffer name, and the C expression of the base pointer."""

    def __init__(
        self, shapes: Mapping[str, tuple[Dim, ...]], layouts: Mapping[str, Layout]
    ) -> None:
        self.shapes = dict(shapes)
        self.layouts = dict(layouts)


class Printer:
    """Prints expressions in one scope; `ranges` bound the index symbols, for simplification of addresses."""

    def __init__(self, dialect: Dialect, addresses: Addresses, ranges: Ranges) -> None:
        self.dialect = dialect
        self.addresses = addresses
        self.ranges = dict(ranges)
        self.sizes: frozenset[str] = frozenset()  # dimensions, which are parameters
        self.temporaries = 0

    def dim(self, value: Dim) -> str:
        """An index expression; division and remainder act on values that are not negative."""
        const, parts = terms(value)
        words: list[str] = []
        for coefficient, atom in parts:
            body = self._atom(atom)
            sign = "-" if coefficient < 0 else "+" if words else ""
            size = abs(coefficient)
            words.append(f"{sign}{body if size == 1 else f'{body} * {size}'}")
        if const or not words:
            words.append(f"+{const}" if const >= 0 and words else str(const))
        text = " ".join(
            w[0] + " " + w[1:] if i and w[0] in "+-" else w for i, w in enumerate(words)
        )
        alone = len(words) == 1 and all(coefficient == 1 for coefficient, _ in parts)
        return text if alone else f"({text})"

    def _atom(self, atom: Atom) -> str:
        match atom:
            case Symbol(name):
                return size_name(name) if name in self.sizes else identifier(name)
            case Product(factors):
                return "(" + " * ".join(self._atom(f) for f in factors) + ")"
            case FloorDiv(numerator, denominator):
                return self._division("/", "ua::floor_div", numerator, denominator)
            case Mod(value, divisor):
                return self._division("%", "ua::floor_mod", value, divisor)
            case Min(args):
                return reduce(lambda a, b: f"ua::min_index({a}, {b})", map(self.dim, args))
            case Max(args):
                return reduce(lambda a, b: f"ua::max_index({a}, {b})", map(self.dim, args))
            case _:
                assert_never(atom)

    def _division(self, operator: str, function: str, value: Dim, by: Dim) -> str:
        low = bounds(value, self.ranges)[0]
        if low is not None and low >= 0:
            if self.dialect.divides and not isinstance(by, int):
                own = {"/": "quotient", "%": "remainder"}[operator]
                return f"{self.dialect.prefix}{own}({self.dim(value)}, {self.dim(by)})"
            return f"({self.dim(value)} {operator} {self.dim(by)})"
        return f"{function}({self.dim(value)}, {self.dim(by)})"

    def offset(self, buffer: str, index: tuple[Dim, ...]) -> Dim:
        """The element offset of a logical index in a buffer, simplified."""
        shape = self.addresses.shapes[buffer]
        return simplify(self.addresses.layouts[buffer].offset(shape, index), self.ranges)

    def element(
        self, buffer: str, index: tuple[IndexEntry, ...], names: Mapping[Scalar, str]
    ) -> str:
        """`buffer[offset]`; data-dependent entries are printed as 64-bit terms of the offset."""
        plain = [e for e in index if not isinstance(e, Scalar)]
        if len(plain) == len(index):
            return f"{identifier(buffer)}[{self.dim(self.offset(buffer, tuple(plain)))}]"
        env: dict[str, str] = {}
        entries: list[Dim] = []
        for position, entry in enumerate(index):
            if isinstance(entry, Scalar):
                placeholder = f"data_{position:02d}_"
                env[placeholder] = f"({self.dialect.index_type})({self.value(entry, names)})"
                entries.append(symbol(placeholder))
            else:
                entries.append(entry)
        text = self.dim(self.offset(buffer, tuple(entries)))
        for placeholder, value in env.items():
            text = text.replace(placeholder, value)
        return f"{identifier(buffer)}[{text}]"

    def value(self, scalar: Scalar, names: Mapping[Scalar, str]) -> str:
        """A scalar as one C expression; subexpressions in `names` are printed by name."""
        known = names.get(scalar)
        if known is not None:
            return known
        match scalar:
            case Lit():
                return literal(scalar.value, scalar.dtype, self.dialect)
            case Call():
                return self._call(scalar, [self.value(a, names) for a in scalar.args])
            case Cast():
                return self._cast(scalar, names)
            case Index():
                return f"(int64_t){self.dim(simplify(scalar.dim, self.ranges))}"
            case Load():
                return self.element(scalar.buffer, scalar.index, names)
            case Name():
                return identifier(scalar.name)
            case Arg():
                raise IRError("a formula argument was not replaced before printing")
            case _:
                raise IRError(f"cannot print {type(scalar).__name__}")

    def _call(self, scalar: Call, args: list[str]) -> str:
        dtype = scalar.args[-1].dtype
        if scalar.fn in ("div", "mod", "fmod", "pow", "abs", "sign", "min", "max") and dtype.is_int:
            return f"ua::int_{scalar.fn}({', '.join(args)})"
        if scalar.fn in WRAPPING and dtype.is_int and dtype.is_signed and dtype.bits >= 32:
            return self._wrapping(scalar, args)
        text = self.dialect.function(scalar.fn, args)
        small = scalar.dtype.is_int and scalar.dtype.bits < 32
        return f"({self.dialect.type(scalar.dtype)}){text}" if small else text

    def _wrapping(self, scalar: Call, args: list[str]) -> str:
        """Sums and products of signed data wrap as in numpy: unsigned arithmetic, since C++ leaves overflow open."""
        kind, wide = self.dialect.type(scalar.dtype), self.dialect.types[f"u{scalar.dtype.bits}"]
        first, *rest = (f"({wide}){arg}" for arg in args)
        operator = WRAPPING[scalar.fn]
        text = f"{first} {operator} {rest[0]}" if rest else f"{operator}{first}"
        return f"({kind})({text})"

    def _cast(self, scalar: Cast, names: Mapping[Scalar, str]) -> str:
        inner, source, target = scalar.value, scalar.value.dtype, scalar.dtype
        if self.dialect.rounds and isinstance(inner, Cast) and inner not in names:
            if target is inner.value.dtype is f32 and source.is_narrow:
                rounded = f"ua::rounded<{self.dialect.type(source)}>"
                return f"{rounded}({self.value(inner.value, names)})"
        value = self.value(inner, names)
        if target.is_bool:
            narrow = source.is_narrow
            plain = f"ua::cast<float, {self.dialect.type(source)}>({value})" if narrow else value
            return f"({plain} != 0)"
        return f"ua::cast<{self.dialect.type(target)}, {self.dialect.type(source)}>({value})"

    def bind(self, scalar: Scalar, names: dict[Scalar, str]) -> tuple[tuple[CNode, ...], str]:
        """Statements that name shared subexpressions, and the expression of `scalar` over those names.

        A subexpression is named only if it is evaluated whatever the conditions say: loads guarded by `where` stay
        inside their branch.
        """
        lines: list[CNode] = []
        always = unconditional(scalar)
        uses = Counter(child for node in always for child in children(node))
        for node in postorder(scalar):
            if node not in always or node in names or isinstance(node, Lit | Name | Index):
                continue
            if isinstance(node, Call) and node.fn == "where" and _needs_branches(node):
                lines += self._branches(node, names)
            elif uses[node] > 1:
                name = self.temporary()
                lines.append(
                    Line(
                        f"const {self.dialect.type(node.dtype)} {name} = {self.value(node, names)};"
                    )
                )
                names[node] = name
        return tuple(lines), self.value(scalar, names)

    def _branches(self, node: Call, names: dict[Scalar, str]) -> list[CNode]:
        """`where` as a declared result and an if statement, so that each branch has its own temporaries."""
        condition, yes, no = node.args
        name = self.temporary()
        first, yes_text = self.bind(yes, dict(names))
        second, no_text = self.bind(no, dict(names))
        result: list[CNode] = [
            Line(f"{self.dialect.type(node.dtype)} {name};"),
            Block(f"if ({self.value(condition, names)})", (*first, Line(f"{name} = {yes_text};"))),
            Block("else", (*second, Line(f"{name} = {no_text};"))),
        ]
        names[node] = name
        return result

    def temporary(self) -> str:
        """A fresh local name."""
        self.temporaries += 1
        return f"t{self.temporaries}"


def unconditional(scalar: Scalar) -> set[Scalar]:
    """Subexpressions that are evaluated whichever way the `where`s inside go."""
    seen: set[Scalar] = set()
    stack = [scalar]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Call) and node.fn == "where" and any(map(_has_load, node.args[1:])):
            stack.append(node.args[0])
        else:
            stack.extend(children(node))
    return seen


def _has_load(scalar: Scalar) -> bool:
    return any(isinstance(node, Load) for node in postorder(scalar))


def _needs_branches(node: Call) -> bool:
    """Whether a branch shares subexpressions that deserve a name."""
    for branch in node.args[1:]:
        uses = Counter(c for n in postorder(branch) for c in children(n))
        if any(count > 1 and not isinstance(n, Lit | Name | Index) for n, count in uses.items()):
            return True
    return False


def literal(value: int | float | bool, dtype: DType, dialect: Dialect) -> str:
    """A literal that reads back as exactly this value in this dtype."""
    if dtype.is_bool:
        return "true" if value else "false"
    if not dtype.is_float:
        plain = _integer(int(value), dtype)
        return plain if dtype.bits >= 32 else f"({dialect.type(dtype)}){plain}"
    kind = "double" if dtype.bits == 64 else "float"
    if math.isnan(value):
        body = "ua::nan()"
    elif math.isinf(value):
        body = "ua::infinity()" if value > 0 else "(-ua::infinity())"
    else:
        text = float(value).hex()
        body = f"{text}" if kind == "double" else f"{text}f"
    plain = body
    return plain if dtype.bits >= 32 else f"ua::cast<{dialect.type(dtype)}, float>({plain})"


def _integer(value: int, dtype: DType) -> str:
    if dtype.bits == 64:
        if value == -(1 << 63):
            return "(-9223372036854775807LL - 1)"
        return f"{value}LL" if dtype.is_signed else f"{value}ULL"
    if value == -(1 << 31):
        return "(-2147483647 - 1)"
    return str(value) if dtype.is_signed or dtype.bits < 32 else f"{value}u"


def identifier(name: str) -> str:
    """A C identifier for a buffer, variable or dimension name; different names stay different."""
    plain = [c if (c.isalnum() and c.isascii()) or c == "_" else f"_{ord(c):x}_" for c in name]
    safe = "".join(plain)
    return safe if safe == name and not safe[0].isdigit() else f"s_{safe}"


def size_name(dim: str) -> str:
    """The C parameter of a dimension: apart from the locals that printers write and C's own words."""
    return f"dim_{identifier(dim)}"
