"""How CUDA C++ spells types and functions."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.codegen.dialect import TYPES, Dialect, standard_functions
from unistack_aot.ir.functions import FUNCTIONS

WIDE = Dialect(
    types=TYPES,
    functions=standard_functions("ua::", tuple(FUNCTIONS)),
    index_type="int64_t",
    restrict="__restrict__",
    unroll=lambda extent: "UA_UNROLL",
    simd="UA_UNROLL",
    divides=True,
)
NARROW = replace(WIDE, index_type="int", divides=False)
"""For kernels whose offsets all fit 32 bits: half the registers for addresses."""
