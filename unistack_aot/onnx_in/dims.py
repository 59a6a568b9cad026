"""Symbolic dimensions of model inputs: names, declared values, ranges. Not here: shape formulas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import onnx

from unistack_aot.aicf.types import Shape, TensorType
from unistack_aot.artifact.manifest import UNBOUNDED
from unistack_aot.base.errors import BadInput, Unsupported
from unistack_aot.base.symbolic import Dim, Ranges, parse, substitute, symbol, symbols
from unistack_aot.onnx_in.tensors import element_type, tensor_shape

Declared = Mapping[str, "int | str | tuple[int, ...]"]

LARGEST = UNBOUNDED  # elements along one axis; exporters write it for "up to the end" of a slice

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
_RESERVED = re.compile(
    r"([a-z](\d*(_[a-z]+)*)|min|max|panel|lane|at_panel|(row|panel)_task|data_\d+_)\Z"
)  # loop variables of kernels have such names


@dataclass
class DimTable:
    """The symbols of one model: `names` maps what the model wrote to the symbol's name.

    A dimension is declared as an extent, as (least, greatest), or as an expression over other ones:
    "batch" makes two dimensions one, "32*rows" makes one a multiple. Undeclared: at least 1.
    """

    declared: Declared
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, Dim] = field(default_factory=dict)

    def named(self, written: str, fallback: str) -> Dim:
        """The dimension that the model writes as `written`; unnamed ones are called `fallback`."""
        anonymous = not re.search(r"[A-Za-z_]", written)
        key = fallback if anonymous else written
        if key not in self.values:  # an expression may use the symbol's name for what has another
            key = next((k for k, name in self.names.items() if name == key), key)
        if key not in self.values:
            self._add(key)
        return self.values[key]

    def _add(self, key: str) -> None:
        taken = set(self.names.values())
        unique = next(n for n in _candidates(_sanitised(key)) if n not in taken)
        self.names[key] = unique
        self.values[key] = symbol(unique)  # while its own declaration is read
        given = self.declared.get(key, self.declared.get(unique))
        if isinstance(given, str):
            self.values[key] = self._expression(key, given)
        elif isinstance(given, int):
            self.values[key] = given
        elif given is not None and min(given) == max(given):
            self.values[key] = given[0]
        else:
            self.ranges[unique] = (1, None) if given is None else (min(given), max(given))

    def _expression(self, key: str, given: str) -> Dim:
        try:
            parsed = parse(given)
        except ValueError:
            raise _undeclarable(key, given) from None
        inner = {name: self.named(name, name) for name in symbols(parsed)}
        found = substitute(parsed, inner)
        if self.names[key] in symbols(found):
            raise _undeclarable(key, given)
        return found

    def check_names(self, given: Declared, parts: bool = False) -> None:
        """BadInput if one of the given names is none of the model's.

        With `parts`, "height.4" passes for a quarter of height: the import may still need it.
        """
        known = {*self.names, *self.names.values()}
        for name in given:
            if name not in known and not (parts and _wholes(name) & known):
                listed = ", ".join(sorted(known)) or "none"
                raise BadInput(
                    f"the model has no dimension {name!r}", hint=f"its dimensions are: {listed}"
                )

    def check_numbers(self) -> None:
        """BadInput if a declared extent is negative, or no extent is given."""
        for name, given in self.declared.items():
            numbers = (given,) if isinstance(given, int) else given
            if not isinstance(numbers, str) and min(numbers, default=-1) < 0:
                raise _undeclarable(name, given)


def _wholes(name: str) -> set[str]:
    """What a dimension may be a part of: "x.2.4" of "x.2", or of "x"."""
    found: set[str] = set()
    while (cut := re.fullmatch(r"(.+)\.\d+", name)) is not None:
        name = cut[1]
        found.add(name)
    return found


def _undeclarable(name: str, given: object) -> BadInput:
    return BadInput(
        f"dimension {name!r} cannot be {given}",
        hint="give an extent, a least and a greatest one, or an expression of other dimensions",
    )


def _sanitised(name: str) -> str:
    plain = name if _PLAIN.match(name) else re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("_")
    if not re.match(r"[A-Za-z_]", plain) or _RESERVED.match(plain):
        plain = f"dim_{plain}"
    return plain


def _candidates(name: str) -> Iterable[str]:
    yield name
    k = 2
    while True:
        yield f"{name}_{k}"
        k += 1


def input_types(
    inputs: Iterable[onnx.ValueInfoProto], table: DimTable
) -> Iterable[tuple[str, TensorType | Unsupported]]:
    """Name and type of each input; a refusal in place of a type that kernels do not have."""
    values = list(inputs)
    _declare_plain_names(values, table)
    for value in values:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            what = "no type" if kind is None else f"a {kind.removesuffix('_type')} type"
            yield (
                value.name,
                Unsupported(
                    f"input {value.name} has {what}", at=value.name, hint="inputs must be tensors"
                ),
            )
            continue
        try:
            dtype = element_type(value.type.tensor_type.elem_type, value.name)
        except Unsupported as refusal:
            yield value.name, refusal
            continue
        if not value.type.tensor_type.HasField("shape"):
            yield (
                value.name,
                Unsupported(
                    f"input {value.name} has no shape",
                    at=value.name,
                    hint="export with the rank known; extents may stay symbolic",
                ),
            )
            continue
        yield value.name, TensorType(dtype, _shape(value, table))


def _declare_plain_names(values: list[onnx.ValueInfoProto], table: DimTable) -> None:
    """Names first, so that a dimension written as an expression of them can be told from a name."""
    for value in values:
        if value.type.WhichOneof("value") != "tensor_type":
            continue
        for dim in tensor_shape(value):
            if dim.dim_param and _PLAIN.match(dim.dim_param):
                table.named(dim.dim_param, "")


def axis_names(value: onnx.ValueInfoProto) -> list[str | None]:
    """The names by which the axes of an input are declared; None where the model fixes the extent."""
    return [
        None
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0
        else dim.dim_param
        if re.search(r"[A-Za-z_]", dim.dim_param)
        else f"{value.name}.{axis}"
        for axis, dim in enumerate(tensor_shape(value))
    ]


def _shape(value: onnx.ValueInfoProto, table: DimTable) -> Shape:
    shape: list[Dim] = []
    for axis, dim in enumerate(tensor_shape(value)):
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
            shape.append(dim.dim_value)
            continue
        expression = _expression(dim.dim_param, table)
        fallback = f"{value.name}.{axis}"
        shape.append(table.named(dim.dim_param, fallback) if expression is None else expression)
    return tuple(shape)


def _expression(written: str, table: DimTable) -> Dim | None:
    """`past + 1` over dimensions that are inputs' own; None if it is anything else."""
    if _PLAIN.match(written) or not re.search(r"[A-Za-z_]", written):
        return None
    if written in table.declared:
        return None
    try:
        parsed = parse(written)
    except ValueError:
        return None
    if not symbols(parsed) or not symbols(parsed) <= table.names.keys():
        return None
    return substitute(parsed, {name: table.named(name, name) for name in symbols(parsed)})


def as_ranges(table: DimTable) -> Ranges:
    """The table's ranges for simplification: an axis without a bound has at most `LARGEST`."""
    spans = table.ranges.items()
    return {name: (low, LARGEST if high is None else high) for name, (low, high) in spans}
