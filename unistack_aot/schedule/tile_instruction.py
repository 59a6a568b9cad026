"""What a scheduler knows of a tile instruction: sizes, workers, element types, near bytes.

Not here: the instructions themselves, which targets declare as data.
"""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.base.dtypes import DType, f32


@dataclass(frozen=True, slots=True)
class TileInstruction:
    """`acc[rows, cols] += a[rows, depth] b[depth, cols]`, done by `workers` threads of one group together.

    `engine` and `rate_dtype` name the map entry with its peak rate; `share` is the part of that peak which the traffic
    of operands between near memory and registers allows. Along an operand whose depth is outermost a worker owns runs
    of `run`; `drained` are the runs of result columns that it has, or gets from the lanes beside it, if these do not
    depend on the operands' orders.
    """

    name: str
    engine: str
    rate_dtype: str
    rows: int
    cols: int
    depth: int
    per_worker: tuple[int, int]
    workers: int
    element: DType
    accumulator: DType
    share: float
    capability: str | None = None
    run: int = 1
    drained: tuple[int, ...] = ()

    @property
    def held(self) -> int:
        """Sums that one worker holds in registers."""
        return self.per_worker[0] * self.per_worker[1]

    def takes(self, a_inner: bool, b_inner: bool) -> bool:
        """Whether the operand orders suit: whole runs along an operand whose depth is outermost."""
        rows, cols = self.per_worker
        return (a_inner or rows % self.run == 0) and (b_inner or cols % self.run == 0)

    def runs(self, b_inner: bool) -> tuple[int, ...]:
        """How many neighbouring columns of the result a worker can store at once."""
        return self.drained or ((1,) if b_inner else (self.run,))

    def near_bytes(self, rows: int, cols: int, by_rows: bool) -> int:
        """Near bytes of an operand tile stored as rows x cols; `by_rows`: eight rows are read at once, not columns."""
        per_chunk = 16 // self.element.bytes
        return rows * padded_chunks(cols // per_chunk, by_rows or self.element.bytes == 2) * 16


def padded_chunks(chunks: int, by_rows: bool) -> int:
    """16-byte chunks of a near tile's row: just those it has where they permute, padded against conflicts elsewhere."""
    if chunks % 8 == 0 or chunks in (1, 2, 4):
        return chunks
    return chunks | 1 if by_rows else chunks + (10 - chunks % 8) % 8


SHOWN = TileInstruction(
    "fma.4x4x8", "fma", "f32", 4, 4, 8, (1, 1), workers=16, element=f32, accumulator=f32, share=0.5
)
"""A small instruction, with which schedule operators show what they do."""
