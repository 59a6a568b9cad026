"""Numpy execution of whole programs: launches in order, host steps, aliases and layouts as memory has them.

Every buffer starts as NaN (or the lowest integer), so that whoever reads what nobody wrote shows it. Not here: what a
kernel computes (evaluate.py), where an arena would put the buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, assert_never

import numpy as np

from unistack_aot.base.errors import BadInput, IRError
from unistack_aot.base.symbolic import Dim, evaluate
from unistack_aot.ir.evaluate import Array
from unistack_aot.ir.scalar import (
    IndexEntry,
    Load,
    Scalar,
    call,
    index_value,
    literal_like,
    transform,
)
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.layout import PLAIN, Layout
from unistack_aot.mcir.nodes import Access, Attend, Contract, Fill, Kernel, Stmt, Store, View
from unistack_aot.mcir.program import (
    Buffer,
    HostCopy,
    HostIf,
    HostLoop,
    HostRefuse,
    Kind,
    Launch,
    Program,
    Sliced,
    Step,
)
from unistack_aot.mcir.transform import map_scalars, rewrite

Seen = Callable[[str, Array], None]


def run_program(
    program: Program,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
    dims: Mapping[str, int],
    seen: Seen | None = None,
) -> dict[str, Array]:
    """The output buffers by name, for input buffers by name, constants by digest and dimension values.

    `seen` is told the name and logical content of each buffer a launch wrote, in order. IRError for an access outside
    a buffer's memory.
    """
    memory = Memory(program, dims)
    for buffer in program.buffers:
        if buffer.kind is Kind.INPUT:
            memory.set(buffer.name, feeds[buffer.name])
        elif buffer.constant is not None:
            memory.flat(buffer.name)[:] = constants[buffer.constant].reshape(-1)
    Runner(memory, dict(dims), seen).steps(program.steps)
    return {b.name: memory.get(b.name) for b in program.buffers if b.kind is Kind.OUTPUT}


class Memory:
    """The bytes of every buffer that owns memory, and typed views into them for the others."""

    def __init__(self, program: Program, dims: Mapping[str, int]) -> None:
        self.buffers = program.by_name()
        self.dims = dims
        self.blocks: dict[str, Array] = {}

    def number(self, value: Dim) -> int:
        """The value of a dimension expression."""
        return evaluate(value, self.dims)

    def flat(self, name: str) -> Array:
        """The elements of a buffer in memory order, padding included; writing to it writes the memory."""
        buffer = self.buffers[name]
        count = self.number(buffer.elements)
        if buffer.alias_of is None:
            if name not in self.blocks:
                fresh = np.full(count, unset(buffer.dtype.numpy), buffer.dtype.numpy)
                self.blocks[name] = fresh.view(np.uint8)
            return self.blocks[name].view(buffer.dtype.numpy)
        start = self.number(buffer.offset) * buffer.dtype.bytes
        part = self.flat(buffer.alias_of).view(np.uint8)[start : start + count * buffer.dtype.bytes]
        if part.size != count * buffer.dtype.bytes:
            raise IRError(f"{name} lies outside {buffer.alias_of}")
        return part.view(buffer.dtype.numpy)

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The logical shape of a buffer as numbers."""
        return tuple(self.number(d) for d in buffer.shape)

    def physical(self, name: str) -> Array:
        """A buffer's memory in its physical shape."""
        buffer = self.buffers[name]
        shape = tuple(self.number(d) for d in buffer.layout.physical_shape(buffer.shape))
        return self.flat(name).reshape(shape)

    def get(self, name: str) -> Array:
        """The logical content of a buffer, copied out of its layout."""
        buffer = self.buffers[name]
        return self.flat(name)[self._places(buffer)]

    def set(self, name: str, value: Array) -> None:
        """Write the logical content of a buffer; padding stays as it is."""
        buffer = self.buffers[name]
        if value.shape != self.shape(buffer) or value.dtype != buffer.dtype.numpy:
            raise IRError(
                f"{name} is {buffer.dtype}{self.shape(buffer)}, got {value.dtype}{value.shape}"
            )
        self.flat(name)[self._places(buffer)] = value

    def _places(self, buffer: Buffer) -> Any:
        shape = self.shape(buffer)
        index = np.indices(shape, np.int64, sparse=True)
        halo = buffer.layout.halo or ((0, 0),) * len(shape)
        position = [i + before for i, (before, _) in zip(index, halo, strict=True)]
        if buffer.layout.block is not None:
            axis, size = buffer.layout.block
            position.append(position[axis] % size)
            position[axis] = position[axis] // size
        total = np.zeros(shape, np.int64)
        for extent, place in zip(buffer.layout.physical_shape(buffer.shape), position, strict=True):
            total = total * self.number(extent) + place
        return total


def unset(dtype: np.dtype[Any]) -> Any:
    """What memory holds before it is written: NaN, the lowest integer, False."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else np.nan


class Runner:
    """Executes steps as the runtime does."""

    def __init__(self, memory: Memory, dims: dict[str, int], seen: Seen | None) -> None:
        self.memory = memory
        self.dims = dims
        self.seen = seen
        self.kernels: dict[Kernel, Kernel] = {}

    def steps(self, steps: Iterable[Step]) -> None:
        """A list of steps in order."""
        for step in steps:
            match step:
                case Launch():
                    self.launch(step)
                case HostCopy():
                    self.copy(step.source, step.target)
                case HostIf():
                    self.steps(step.then if self.scalar(step.condition) else step.otherwise)
                case HostLoop():
                    self.loop(step)
                case HostRefuse():
                    raise BadInput(step.reason)
                case _:
                    assert_never(step)

    def launch(self, launch: Launch) -> None:
        """One kernel over the physical memory of its buffers."""
        if launch.kernel not in self.kernels:
            self.kernels[launch.kernel] = physical_kernel(launch.kernel)
        kernel = self.kernels[launch.kernel]
        bound = dict(zip((p.name for p in kernel.params), launch.args, strict=True))
        arrays = {
            p.name: self.memory.physical(bound[p.name])
            for p in kernel.params
            if p.access is not Access.OUT
        }
        for name, result in evaluate_kernel(kernel, arrays, self.dims).items():
            self.memory.physical(bound[name])[...] = result
            if self.seen is not None:
                self.seen(bound[name], self.memory.get(bound[name]))

    def copy(self, source: str, target: str) -> None:
        """A whole buffer into another."""
        self.memory.flat(target)[:] = self.memory.flat(source)

    def scalar(self, name: str) -> int:
        """The value of an integer or bool scalar."""
        return int(self.memory.flat(name)[0])

    def loop(self, loop: HostLoop) -> None:
        """Iterations while trips remain and the condition holds."""
        limit = loop.trips
        trips = self.scalar(limit) if isinstance(limit, str) else limit
        count = None if trips is None else self.memory.number(trips)
        going = loop.condition is None or self.scalar(loop.condition) != 0
        for carried in loop.carried:
            self.copy(carried.initial, carried.entry)
        done = 0
        while going and (count is None or done < count):
            if loop.iteration is not None:
                self.memory.flat(loop.iteration)[:] = done
            for scanned in loop.scanned:
                self.memory.physical(scanned.slice)[...] = self.row(scanned, done)
            self.steps(loop.body)
            for stacked in loop.stacked:
                self.row(stacked, done)[...] = self.memory.physical(stacked.slice)
            if loop.next_condition is not None:
                going = self.scalar(loop.next_condition) != 0
            for carried in loop.carried:
                self.copy(carried.exit, carried.entry)
            done += 1
        for carried in loop.carried:
            self.copy(carried.entry, carried.final)

    def row(self, sliced: Sliced, done: int) -> Array:
        """The slice of an iteration, as a view."""
        whole = self.memory.physical(sliced.stacked)
        if done >= len(whole):
            raise IRError(f"{sliced.stacked} has room for {len(whole)} iterations")
        return whole[len(whole) - 1 - done if sliced.reverse else done, ...]


def physical_kernel(kernel: Kernel) -> Kernel:
    """The kernel over plain buffers of the physical shapes: halo and padding become elements like others."""
    laid = {p.name: p.layout for p in kernel.params if not p.layout.plain}
    if not laid:
        return kernel
    shapes = {p.name: p.layout.physical_shape(p.shape) for p in kernel.params}
    params = tuple(replace(p, shape=shapes[p.name], layout=PLAIN) for p in kernel.params)

    def load(value: Scalar) -> Scalar | None:
        if not isinstance(value, Load) or value.buffer not in laid:
            return None
        return Load(value.buffer, physical_index(value.index, laid[value.buffer]), value.dtype)

    def view(v: View) -> View:
        if v.buffer not in laid:
            return v
        index = physical_index(v.index, laid[v.buffer])
        return replace(v, index=tuple(e for e in index if not isinstance(e, Scalar)))

    def each(stmt: Stmt) -> Stmt | None:
        match stmt:
            case Store() if stmt.buffer in laid:
                return replace(stmt, index=physical_index(stmt.index, laid[stmt.buffer]))
            case Contract():
                return replace(stmt, a=view(stmt.a), b=view(stmt.b))
            case Attend():
                return replace(stmt, q=view(stmt.q), k=view(stmt.k), v=view(stmt.v))
            case Fill():
                return replace(stmt, source=view(stmt.source))
            case _:
                return None

    body = rewrite(map_scalars(kernel.body, lambda v: transform(v, load)), each)
    return replace(kernel, params=params, body=body)


def physical_index(index: tuple[IndexEntry, ...], layout: Layout) -> tuple[IndexEntry, ...]:
    """Where a logical index lies in the physical shape."""
    halo = layout.halo or ((0, 0),) * len(index)
    places: list[IndexEntry] = [
        entry + before if before else entry for entry, (before, _) in zip(index, halo, strict=True)
    ]
    if layout.block is not None:
        axis, size = layout.block
        entry = places[axis]
        if isinstance(entry, Scalar):
            by = literal_like(size, index_value(0))
            inner = call("mod", entry, by)
            places[axis] = call("div", entry - inner, by)
            places.append(inner)
        else:
            places[axis] = entry // size
            places.append(entry % size)
    return tuple(places)
