"""Schedule operator: results that workers hold in registers are stored in runs of neighbours, 16 bytes at once.

Not here: which runs an instruction offers (targets), how lanes exchange what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from unistack_aot.base.symbolic import Ranges, divisible, simplify
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.mcir.nodes import Attend, Drain, Kernel, Stmt, Store
from unistack_aot.mcir.transform import rewrite, walk
from unistack_aot.schedule.operator import Kernels, Operator

WIDEST = 16  # bytes of the widest store


def can_store_runs(kernel: Kernel, runs: Sequence[int], ranges: Ranges) -> Yes | No:
    """Whether results leave registers, and are stored one by one so far."""
    found = [stmt for stmt in walk(kernel.body) if isinstance(stmt, Drain | Attend)]
    if not found:
        return No("no results in registers")
    return No("results are stored in runs already") if any(s.run > 1 for s in found) else YES


def stored_in_runs(kernel: Kernel, runs: Sequence[int], ranges: Ranges) -> Kernel:
    """As many neighbouring results at once, of the numbers in `runs`, as make one store and end where rows do.

    before:
        kernel product(a: f32[N, 20] far, b: f32[20, 16] far) -> y: f32[N, 16] far group=16 {
          for row_tile in (N + 3)//4 role=grid, col_tile in 4 role=grid {
            acc: f32[4, 4] reg = 0.0
            acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ 4]
                += contract(a[m, k], b[k, n]) over k in 20 via fma.4x4x8 blocks(4, 4, 8)
            drain acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ 4] as s {
              y[m, n] = s
            }
          }
        }
    after:
        kernel k0(a: f32[N, 20] far, b: f32[20, 16] far) -> y: f32[N, 16] far group=16 {
          for row_tile in (N + 3)//4 role=grid, col_tile in 4 role=grid {
            acc: f32[4, 4] reg = 0.0
            acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ 4]
                += contract(a[m, k], b[k, n]) over k in 20 via fma.4x4x8 blocks(4, 4, 8)
            drain acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ 4] as s by 4 {
              y[m, n] = s
            }
          }
        }
    """

    def each(stmt: Stmt) -> Stmt | None:
        match stmt:
            case Drain():
                total = simplify(stmt.cols.first + stmt.cols.extent, ranges)
                ends = (total, stmt.cols.extent)
            case Attend():
                ends = (stmt.values.extent,)
            case _:
                return None

        def fits(run: int) -> bool:
            return any(divisible(end, run) for end in ends)

        return replace(stmt, run=_run(kernel, stmt.body, runs, fits))

    return kernel.with_body(rewrite(kernel.body, each))


def _run(
    kernel: Kernel, body: tuple[Stmt, ...], runs: Sequence[int], fits: Callable[[int], bool]
) -> int:
    """The run of the widest store of a body; 1 if none fits."""
    stores = (s for s in walk(body) if isinstance(s, Store))
    largest = max((kernel.param(s.buffer).dtype.bytes for s in stores), default=1)
    offered = [run for run in runs if run * largest <= WIDEST or run == min(runs)]
    return max((run for run in offered if fits(run)), default=1)


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    found = STORE_RUNS(kernel, (4, 8), {})
    return found if isinstance(found, No) else (found,)


STORE_RUNS = Operator("store-runs", can_store_runs, stored_in_runs, _example)
