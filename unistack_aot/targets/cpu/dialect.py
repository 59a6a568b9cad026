"""How C++ for the host spells types and functions."""

from __future__ import annotations

from unistack_aot.codegen.dialect import Dialect, standard_functions
from unistack_aot.ir.functions import FUNCTIONS

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

DIALECT = Dialect(
    types=TYPES,
    functions=standard_functions("ua::", tuple(FUNCTIONS)),
    index_type="int64_t",
    restrict="__restrict__",
    unroll=lambda extent: f"#pragma GCC unroll {max(1, min(extent, 64))}",
    simd="#pragma omp simd",
)
