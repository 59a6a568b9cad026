"""The far accesses of a kernel body as linear offsets: which are contiguous, strided or invariant in a loop."""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.base.symbolic import Dim, Ranges, linear_split, simplify, symbols
from unistack_aot.ir.scalar import Scalar, loads
from unistack_aot.mcir.nodes import Kernel, Stmt, Store
from unistack_aot.mcir.transform import scalars, walk


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store of a parameter; `offset` in elements, None if the index depends on data."""

    buffer: str
    offset: Dim | None
    write: bool

    def stride(self, var: str) -> Dim | None:
        """Elements moved per step of `var`; 0 if it does not depend on it, None if it is not linear in it."""
        if self.offset is None:
            return None
        if isinstance(self.offset, int) or var not in symbols(self.offset):
            return 0
        parts = linear_split(self.offset, var)
        return None if parts is None else parts[0]


def accesses(kernel: Kernel, body: tuple[Stmt, ...], ranges: Ranges) -> tuple[Access, ...]:
    """Every load and store of a kernel parameter inside `body`."""
    params = {p.name: p for p in kernel.params}
    found: list[Access] = []

    def add(buffer: str, index: tuple[int | object, ...], write: bool) -> None:
        param = params.get(buffer)
        if param is None:
            return
        dims = [e for e in index if not isinstance(e, Scalar)]
        if len(dims) != len(index):
            found.append(Access(buffer, None, write))
            return
        offset = param.layout.offset(param.shape, tuple(dims))  # type: ignore[arg-type]
        found.append(Access(buffer, simplify(offset, ranges), write))

    for stmt in walk(body):
        if isinstance(stmt, Store):
            add(stmt.buffer, stmt.index, True)
        for value in scalars(stmt):
            for load in loads(value):
                add(load.buffer, load.index, False)
    return tuple(found)
