"""How C++ for the host spells types and functions."""

from __future__ import annotations

from unistack_aot.codegen.dialect import TYPES, Dialect, standard_functions
from unistack_aot.ir.functions import FUNCTIONS

DIALECT = Dialect(
    types=TYPES,
    functions=standard_functions("ua::", tuple(FUNCTIONS)),
    index_type="int64_t",
    restrict="__restrict__",
    unroll=lambda extent: f"#pragma GCC unroll {max(1, min(extent, 64))}",
    simd="#pragma omp simd",
    start="ua::start()",
    rounds=True,
)
