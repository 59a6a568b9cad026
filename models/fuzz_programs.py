"""Runs a memory program in numpy, launch by launch, at any stage of its scheduling.

Halos and the channels that only pad a block are made part of the logical extents, so that a kernel
that reads them finds what was stored there, or NaN. Not here: what is compared (fuzzing.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unistack_aot.base.symbolic import Dim, evaluate
from unistack_aot.ir.scalar import Load, Scalar, index_value
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.layout import PLAIN, Layout
from unistack_aot.mcir.nodes import Access, Attend, Contract, Fill, Kernel, Stmt, Store, View
from unistack_aot.mcir.program import (
    Buffer,
    HostCopy,
    HostIf,
    HostLoop,
    Kind,
    Launch,
    Program,
    Step,
)
from unistack_aot.mcir.transform import replace_loads, rewrite

Array: TypeAlias = NDArray[Any]


def run_program(
    program: Program,
    constants: Mapping[str, Array],
    feeds: Mapping[str, Array],
    dims: Mapping[str, int],
) -> dict[str, Array]:
    """The output buffers by name, for input buffers by name. IRError for a faulty access."""
    machine = Interpreter(program.by_name(), dims)
    for buffer in program.buffers:
        shape = machine.shape(buffer)
        if buffer.kind is Kind.INPUT:
            machine.memory[buffer.name] = feeds[buffer.name].reshape(shape)
        elif buffer.constant is not None:
            held = constants[buffer.constant]
            machine.memory[buffer.name] = unblocked(held, buffer.layout).reshape(shape)
        elif buffer.alias_of is None:
            machine.memory[buffer.name] = poisoned(shape, buffer.dtype.numpy)
    machine.run(program.steps)
    found: dict[str, Array] = {}
    for buffer in program.buffers:
        if buffer.kind is Kind.OUTPUT:
            found[buffer.name] = machine.read(buffer.name)
    return found


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Memory nobody wrote: every byte 0xFF, as the runtime's poison."""
    if dtype == np.bool_:
        return np.ones(shape, dtype)
    size = prod(shape)
    return np.frombuffer(b"\xff" * (size * dtype.itemsize), dtype).reshape(shape).copy()


def unblocked(array: Array, layout: Layout) -> Array:
    """An array in a layout's memory order as a plain one, padding included."""
    if layout.block is None:
        return array
    axis, _size = layout.block
    moved = np.moveaxis(array, -1, axis + 1)
    return moved.reshape(*moved.shape[:axis], -1, *moved.shape[axis + 2 :])


def margins(layout: Layout, rank: int) -> tuple[tuple[int, int], ...]:
    """Elements before and after each axis that the layout's halo adds."""
    return layout.halo or ((0, 0),) * rank


@dataclass
class Interpreter:
    """The contents of buffers while steps run."""

    buffers: Mapping[str, Buffer]
    dims: Mapping[str, int]
    memory: dict[str, Array] = field(default_factory=dict)
    kernels: dict[tuple[Kernel, tuple[str, ...]], Kernel] = field(default_factory=dict)

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """Logical extents with halo and padding channels."""
        return tuple(evaluate(d, self.dims) for d in padded_shape(buffer.shape, buffer.layout))

    def read(self, name: str) -> Array:
        """A buffer's content, through aliases."""
        if name in self.memory:
            return self.memory[name]
        buffer = self.buffers[name]
        assert buffer.alias_of is not None
        flat = self.read(buffer.alias_of).reshape(-1)
        shape, start = self.shape(buffer), evaluate(buffer.offset, self.dims)
        return flat[start : start + prod(shape)].reshape(shape)

    def write(self, name: str, array: Array) -> None:
        """Set a buffer's content, through aliases."""
        if self.buffers[name].alias_of is None:
            assert self.memory[name].shape == array.shape, name
            self.memory[name] = np.array(array)
        else:
            self.read(name)[...] = array

    def run(self, steps: tuple[Step, ...]) -> None:
        """Run steps in order."""
        for step in steps:
            match step:
                case Launch():
                    self.launch(step)
                case HostCopy():
                    source = self.read(step.source)
                    self.write(step.target, source.reshape(self.read(step.target).shape))
                case HostIf():
                    self.run(step.then if self.read(step.condition).item() else step.otherwise)
                case HostLoop():
                    self.loop(step)

    def launch(self, launch: Launch) -> None:
        """One kernel."""
        kernel = widened_indices(launch.kernel)
        arrays = {
            p.name: self.read(arg)
            for p, arg in zip(kernel.params, launch.args, strict=True)
            if p.access is not Access.OUT
        }
        results = evaluate_kernel(kernel, arrays, self.dims)
        for param, arg in zip(kernel.params, launch.args, strict=True):
            if param.name in results:
                self.write(arg, results[param.name])

    def loop(self, step: HostLoop) -> None:
        """A host loop as the runtime drives it."""
        limit: int | None = None
        if isinstance(step.trips, str):
            limit = int(self.read(step.trips).item())
        elif step.trips is not None:
            limit = evaluate(step.trips, self.dims)
        going = step.condition is None or bool(self.read(step.condition).item())
        for carried in step.carried:
            self.write(carried.entry, self.read(carried.initial))
        done = 0
        while going and (limit is None or done < limit):
            if step.iteration is not None:
                self.write(step.iteration, np.asarray(done, np.int64))
            for part in step.scanned:
                stack = self.read(part.stacked)
                self.write(part.slice, stack[len(stack) - 1 - done if part.reverse else done])
            self.run(step.body)
            for part in step.stacked:
                stack = self.read(part.stacked)
                stack[len(stack) - 1 - done if part.reverse else done] = self.read(part.slice)
            if step.next_condition is not None:
                going = bool(self.read(step.next_condition).item())
            for carried in step.carried:
                self.write(carried.entry, self.read(carried.exit))
            done += 1
        for carried in step.carried:
            self.write(carried.final, self.read(carried.entry))


def padded_shape(shape: tuple[Dim, ...], layout: Layout) -> tuple[Dim, ...]:
    """Logical extents with the layout's halo and padding channels."""
    halo = margins(layout, len(shape))
    found = [d + a + b for d, (a, b) in zip(shape, halo, strict=True)]
    if layout.block is not None:
        axis, size = layout.block
        found[axis] = found[axis] + (-found[axis]) % size
    return tuple(found)


def widened_indices(kernel: Kernel) -> Kernel:
    """The kernel over plain buffers whose extents include halos and padding."""
    moved = {p.name: margins(p.layout, len(p.shape)) for p in kernel.params if not p.layout.plain}
    if not moved:
        return kernel
    params = tuple(
        replace(p, shape=padded_shape(p.shape, p.layout), layout=PLAIN) for p in kernel.params
    )

    def shifted(buffer: str, index: tuple[Any, ...]) -> tuple[Any, ...]:
        if buffer not in moved:
            return index
        pairs = zip(index, moved[buffer], strict=True)
        return tuple(
            (e + index_value(a) if isinstance(e, Scalar) else e + a) if a else e
            for e, (a, _) in pairs
        )

    def view(v: View) -> View:
        return replace(v, index=shifted(v.buffer, v.index))

    def change(stmt: Stmt) -> Stmt | None:
        match stmt:
            case Store():
                return replace(stmt, index=shifted(stmt.buffer, stmt.index))
            case Contract():
                return replace(stmt, a=view(stmt.a), b=view(stmt.b))
            case Attend():
                return replace(stmt, q=view(stmt.q), k=view(stmt.k), v=view(stmt.v))
            case Fill():
                return replace(stmt, source=view(stmt.source))
            case _:
                return None

    def load(each: Load) -> Scalar | None:
        if each.buffer not in moved:
            return None
        return Load(each.buffer, shifted(each.buffer, each.index), each.dtype)

    body = rewrite(replace_loads(kernel.body, load), change)
    return Kernel(params, body, kernel.reinterprets)
