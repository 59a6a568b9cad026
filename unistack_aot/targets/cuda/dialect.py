"""How CUDA C++ spells types and functions."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.codegen.dialect import STANDARD_TYPES, Dialect, standard_functions
from unistack_aot.ir.functions import FUNCTIONS

TYPES = {**STANDARD_TYPES, "f16": "ua::f16", "bf16": "ua::bf16"}

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
