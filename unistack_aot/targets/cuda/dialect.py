"""How CUDA C++ spells types and functions."""

from __future__ import annotations

from dataclasses import replace

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

WIDE = Dialect(
    types=TYPES,
    functions=standard_functions("ua::", tuple(FUNCTIONS)),
    index_type="int64_t",
    restrict="__restrict__",
    unroll=lambda extent: "UA_UNROLL",
    simd="UA_UNROLL",
)
NARROW = replace(WIDE, index_type="int")
"""For kernels whose offsets all fit 32 bits: half the registers for addresses."""
