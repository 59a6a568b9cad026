"""What a C-family dialect must spell: types, literals, functions, parallel loops. Each target declares one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unistack_aot.base.dtypes import DType


@dataclass(frozen=True, slots=True)
class Dialect:
    """Spelling of one target.

    `types`: storage type per dtype name; `functions`: format per scalar function name, e.g. "ua::exp({0})";
    `narrow`: storage types that must be converted to float before arithmetic; `index_type`: integer type of indices;
    `restrict`: the qualifier of pointers that do not alias; `unroll`: the pragma before an unrolled loop; `start`:
    a zero to begin loops with whose loads are conditional, where the compiler must not know it to be one; `divides`:
    whether indices are divided by variables with functions of its own, `quotient` and `remainder`; `rounds`: whether
    an f32 is rounded to a narrow type and back by a function of its own, `rounded`.
    """

    types: Mapping[str, str]
    functions: Mapping[str, str]
    index_type: str
    restrict: str
    unroll: Callable[[int], str]
    simd: str = ""
    start: str = "0"
    divides: bool = False
    rounds: bool = False
    prefix: str = "ua::"

    def type(self, dtype: DType) -> str:
        """The C type that stores `dtype`."""
        return self.types[dtype.name]

    def function(self, name: str, args: list[str]) -> str:
        """A call of a scalar function."""
        return self.functions[name].format(*args)


TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "ua::f16",
    "bf16": "ua::bf16",
    "i64": "int64_t",
    "i32": "int32_t",
    "i16": "int16_t",
    "i8": "int8_t",
    "u64": "uint64_t",
    "u32": "uint32_t",
    "u16": "uint16_t",
    "u8": "uint8_t",
    "bool": "bool",
}
"""Storage types; every C-family dialect spells them alike, and its headers define the narrow floats."""

OPERATORS = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "neg": "(-{0})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "eq": "({0} == {1})",
    "and": "({0} && {1})",
    "or": "({0} || {1})",
    "xor": "({0} != {1})",
    "not": "(!{0})",
    "bit_and": "({0} & {1})",
    "bit_or": "({0} | {1})",
    "bit_xor": "({0} ^ {1})",
    "bit_not": "(~{0})",
    "shift_left": "({0} << {1})",
    "shift_right": "({0} >> {1})",
    "where": "({0} ? {1} : {2})",
    "div": "({0} / {1})",
}


def standard_functions(prefix: str, names: tuple[str, ...]) -> dict[str, str]:
    """Operators as C operators, every other function as `prefix::name(args)`; device headers define those."""
    table = {n: f"{prefix}{n}({{0}})" for n in names}
    for name in ("pow", "mod", "fmod"):
        table[name] = f"{prefix}{name}({{0}}, {{1}})"
    table["min"] = f"{prefix}minimum({{0}}, {{1}})"
    table["max"] = f"{prefix}maximum({{0}}, {{1}})"
    return table | OPERATORS
