"""How the weights of a recurrence lie in memory, for workers with vectors: lanes are neighbouring units.

Not here: loop roles (few_wide.py), the loop over time itself (ops/recurrent.py).
"""

from __future__ import annotations

from unistack_aot.base.symbolic import Dim, divisible, symbol
from unistack_aot.ir.scalar import Load, Scalar, postorder
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.nodes import Fold, Kernel, Loop, Role, Stmt
from unistack_aot.mcir.transform import all_loads, walk

# Units per block. A sum over 256 states for 64 units at once keeps four vectors of AVX-512 (eight of AVX2) apart,
# as many as an addition takes cycles: 1.3 ms per 100 steps of 256 units against 3.1 ms with lanes along the sum.
UNITS = (64, 32, 16)


def step_weights(kernel: Kernel) -> dict[str, Layout]:
    """Layouts of the matrices that sums inside an ordered loop read row by row: in blocks of rows.

    In `s = fold sum over k in 64 of w[h, k] * y[t - 1, k]`, step by step for 64 units h, the elements w[h, k] of 64
    neighbouring units lie beside each other then.
    """
    found: dict[str, Layout] = {}
    for ordered in kernel.body:
        if isinstance(ordered, Loop) and ordered.role is Role.SEQ:
            for loop in walk(ordered.body):
                if isinstance(loop, Loop) and loop.role is Role.MAP:
                    found.update(_of_rows(kernel, loop))
    return {name: layout for name, layout in found.items() if _agrees(kernel, name, layout)}


def _of_rows(kernel: Kernel, loop: Loop) -> dict[str, Layout]:
    """Matrices whose rows the loop's own sums run along."""
    layouts: dict[str, Layout] = {}
    size = next((n for n in UNITS if divisible(loop.extent, n)), None)
    for fold in loop.body:
        if size is None or not isinstance(fold, Fold) or fold.body:
            continue
        for load in _loads(fold):
            rows = [k for k, entry in enumerate(load.index) if _is_unit(entry, loop.var, size)]
            along = load.index[-1] is symbol(fold.axes[-1].var)
            if len(rows) == 1 and along and kernel.param(load.buffer).layout.plain:
                layouts[load.buffer] = Layout((rows[0], size))
    return layouts


def _loads(fold: Fold) -> tuple[Load, ...]:
    return tuple(n for value in fold.values for n in postorder(value) if isinstance(n, Load))


def _is_unit(entry: Dim | Scalar, var: str, size: int) -> bool:
    """Whether an index entry is the loop's variable, counted from the start of a block."""
    if isinstance(entry, int | Scalar) or var not in entry.symbols:
        return False
    first = entry - symbol(var)
    return isinstance(first, int) and first % size == 0


def _agrees(kernel: Kernel, name: str, layout: Layout) -> bool:
    """Whether every reader takes whole blocks, and nobody writes."""
    assert layout.block is not None
    axis, size = layout.block
    names = {s.var for s in _loops(kernel.body)}
    loads = [load for load in all_loads(kernel.body) if load.buffer == name]
    return all(any(_is_unit(load.index[axis], var, size) for var in names) for load in loads)


def _loops(body: tuple[Stmt, ...]) -> tuple[Loop, ...]:
    return tuple(s for s in walk(body) if isinstance(s, Loop) and s.role is Role.MAP)
