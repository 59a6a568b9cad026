"""Running a CPU variant: pointer tables, arena, calls of `ua_run`.

Not here: choosing the variant (processor.py), loading its code (library.py), the order of steps
(steps.py).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np

from unistack_aot.artifact.manifest import Scanned, Variant
from unistack_aot.artifact.reader import Package
from unistack_aot.base.dtypes import parse_dtype
from unistack_aot.base.errors import BadPackage, UnistackError
from unistack_aot.runtime.layout import Layout, value
from unistack_aot.runtime.library import run_function
from unistack_aot.runtime.memory import HUGE_PAGE, HostBlock, address_of, aligned_empty, view
from unistack_aot.runtime.ports import Port, ports
from unistack_aot.runtime.steps import Run, execute, prepare

Array: TypeAlias = "np.ndarray[Any, Any]"
_BYTES = np.dtype(np.uint8)
MOST_ELEMENTS = (1 << 31) - 1


class CpuProgram:
    """A CPU variant made ready: code loaded, constants in place; `plan` binds it to a layout.

    All plans share one arena, as large as the largest of them needs, so only one may run at a time.
    """

    def __init__(self, package: Package, variant: Variant, threads: int) -> None:
        self.variant = variant
        self.threads = threads
        self.schedule = prepare(variant.steps)
        self.dims = tuple(dim.name for dim in package.manifest.dims)
        self.ua_run = run_function(package, variant)
        self._kept: list[object] = []
        self.constants = self._constants(package)
        self.arena = HostBlock(0)
        self.in_arena: CpuPlan | None = None  # whose once-zeroed buffers are intact
        self.poison = False  # a test's wish: every run starts with 0xFF (NaN) in arena and outputs

    def plan(self, layout: Layout) -> CpuPlan:
        """The variant bound to a layout."""
        check_sizes(self.variant, layout)
        if layout.arena.peak > self.arena.nbytes:
            self.arena = HostBlock(layout.arena.peak)
            self.in_arena = None
        return CpuPlan(self, layout)

    def _constants(self, package: Package) -> dict[str, int]:
        """The address of every constant; large files are copied to huge pages, others mapped."""
        addresses: dict[str, int] = {}
        for member in self.variant.weights:
            data = np.frombuffer(package.data(member), np.uint8)
            move = 0
            if data.nbytes >= HUGE_PAGE:
                block = HostBlock(data.nbytes)
                view(block.address, data.shape, _BYTES)[:] = data
                move = block.address - address_of(data)
                self._kept.append(block)
                package.forget(member)
            else:
                self._kept.append(data)
            for key, tensor in package.tensors(member).items():
                if tensor.data.nbytes:
                    addresses[key] = address_of(np.frombuffer(tensor.data, np.uint8)) + move
                else:
                    addresses[key] = 0
        return addresses


def check_sizes(variant: Variant, layout: Layout) -> None:
    """Refuse a binding that makes a buffer larger than the offsets inside tiles can tell (32 bits)."""
    for buffer, nbytes in zip(variant.buffers, layout.nbytes, strict=True):
        count = nbytes // parse_dtype(buffer.dtype).bytes
        if count > MOST_ELEMENTS:
            raise UnistackError(
                f"buffer {buffer.name!r} would have {count} elements, at most {MOST_ELEMENTS} can be",
                at=", ".join(f"{name} = {size}" for name, size in layout.dims.items()),
                hint="run with smaller dimensions",
            )


class CpuMachine:
    """The pointer table of a plan, and what steps do with it (`steps.Machine`)."""

    def __init__(self, program: CpuProgram, layout: Layout) -> None:
        self._ua_run = program.ua_run
        self._threads = program.threads
        self._variant = program.variant
        self._layout = layout
        self.table = (ctypes.c_void_p * max(1, len(program.variant.buffers)))()
        bound = [layout.dims[name] for name in program.dims]
        self._dims = (ctypes.c_int64 * max(1, len(bound)))(*bound)
        self._runs = tuple(
            ((ctypes.c_int32 * len(run.launches))(*run.launches), len(run.launches))
            for run in program.schedule.runs
        )
        self._dtypes: dict[int, np.dtype[Any]] = {}
        self.timings: list[tuple[int, float]] | None = None
        self.clock: Callable[[], float] | None = None

    def run(self, run: Run) -> None:
        """Execute launches in order with one call, or one by one while `timings` is a list."""
        if self.timings is None:
            launches, count = self._runs[run.number]
            code = self._ua_run(launches, count, self.table, self._dims, self._threads)
            if code:
                self._failed(code, run)
            return
        clock = self.clock or time.perf_counter
        for number in run.launches:
            one = (ctypes.c_int32 * 1)(number)
            begin = clock()
            code = self._ua_run(one, 1, self.table, self._dims, self._threads)
            self.timings.append((number, clock() - begin))
            if code:
                self._failed(code, run)

    def copy(self, source: int, target: int) -> None:
        """Copy a whole buffer."""
        nbytes = self._layout.nbytes[target]
        ctypes.memmove(self.table[target], self.table[source], nbytes)

    def zero(self, buffer: int) -> None:
        """Fill a buffer with zero bytes."""
        ctypes.memset(self.table[buffer], 0, self._layout.nbytes[buffer])

    def read(self, buffer: int) -> int:
        """The value of an integer or bool scalar."""
        return int(self._scalar(buffer)[0])

    def write(self, buffer: int, number: int) -> None:
        """Set an integer or bool scalar."""
        self._scalar(buffer)[0] = number

    def take(self, scanned: Scanned, index: int) -> None:
        """Copy slice ``index`` out of the stacked buffer."""
        stacked, part = self._stacked(scanned)
        part[:] = stacked[:, index]

    def put(self, scanned: Scanned, index: int) -> None:
        """Copy the slice into place ``index`` of the stacked buffer."""
        stacked, part = self._stacked(scanned)
        stacked[:, index] = part

    def extent(self, buffer: int, axis: int) -> int:
        """Size of a buffer along an axis."""
        return self._layout.shapes[buffer][axis]

    def value(self, expression: str) -> int:
        """Value of a dimension expression."""
        return value(expression, self._layout.dims)

    def _scalar(self, buffer: int) -> Array:
        dtype = self._dtypes.get(buffer)
        if dtype is None:
            dtype = self._dtypes[buffer] = parse_dtype(self._variant.buffers[buffer].dtype).numpy
        return view(self.table[buffer] or 0, (1,), dtype)

    def _stacked(self, scanned: Scanned) -> tuple[Array, Array]:
        """The stacked buffer as bytes [outer, extent, inner], its slice as [outer, inner]."""
        shape = self._layout.shapes[scanned.stacked]
        outer, extent = prod(shape[: scanned.axis]), shape[scanned.axis]
        inner = self._layout.nbytes[scanned.stacked] // max(1, outer * extent)
        stacked = view(self.table[scanned.stacked] or 0, (outer, extent, inner), _BYTES)
        return stacked, view(self.table[scanned.slice] or 0, (outer, inner), _BYTES)

    def _failed(self, code: int, run: Run) -> None:
        names: dict[str, None] = {}
        for number in run.launches:
            kernel = self._variant.kernels[self._variant.launches[number].kernel]
            names.update(dict.fromkeys(kernel.origins or (kernel.symbol,)))
        raise UnistackError(
            f"the machine code of {self._variant.target} reported failure {code}",
            at=", ".join(names),
            hint="run `unistack-aot check` on the package",
        )


class CpuPlan:
    """A program with fixed shapes. `run` is not re-entrant: the session holds a lock."""

    def __init__(self, program: CpuProgram, layout: Layout) -> None:
        self.layout = layout
        self.machine = CpuMachine(program, layout)
        self._program = program
        self._inputs = ports(program.variant, layout, "input")
        self._outputs = ports(program.variant, layout, "output")
        self._measured = tuple((m.dim, m.buffer) for m in program.variant.measured)
        self._arena: HostBlock | None = None
        self._point_to_constants()

    def run(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, int]]:
        """Fresh output arrays by name, and the dimensions measured during the run."""
        program, machine = self._program, self.machine
        if self._arena is not program.arena:
            self._point_to_arena(program.arena)
        if program.poison:
            ctypes.memset(program.arena.address, 0xFF, program.arena.nbytes)
            program.in_arena = None
        kept = [self._enter(port, inputs[port.name]) for port in self._inputs]
        outputs = {port.name: self._fresh(port) for port in self._outputs}
        if program.in_arena is not self:
            for number in program.schedule.zeroed_once:
                machine.zero(number)
            program.in_arena = self
        execute(program.schedule.block, machine)
        measured = {dim: machine.read(buffer) for dim, buffer in self._measured}
        del kept  # the inputs, alive until here
        return outputs, measured

    def _enter(self, port: Port, array: Array) -> Array:
        """Point the table at an input, or at a copy where it is strided or misaligned."""
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        address = array.__array_interface__["data"][0]
        if address % port.alignment:
            aligned = aligned_empty(port.shape, port.dtype, port.alignment)
            aligned[...] = array
            array, address = aligned, address_of(aligned)
        table = self.machine.table
        for number, shift in port.entries:
            table[number] = address + shift
        return array

    def _fresh(self, port: Port) -> Array:
        array = np.empty(port.shape, port.dtype)
        address = array.__array_interface__["data"][0]
        if address % port.alignment:
            array = aligned_empty(port.shape, port.dtype, port.alignment)
            address = address_of(array)
        if self._program.poison:
            ctypes.memset(address, 0xFF, array.nbytes)
        table = self.machine.table
        for number, shift in port.entries:
            table[number] = address + shift
        return array

    def _point_to_arena(self, arena: HostBlock) -> None:
        layout = self.layout
        for number, root in enumerate(layout.root):
            if layout.offset[root] >= 0:
                place = layout.offset[root] + layout.shift[number]
                self.machine.table[number] = arena.address + place
        self._arena = arena

    def _point_to_constants(self) -> None:
        buffers = self._program.variant.buffers
        for number, root in enumerate(self.layout.root):
            if buffers[root].kind != "constant":
                continue
            address = self._program.constants.get(buffers[root].key)
            if address is None:
                raise BadPackage(
                    f"constant {buffers[root].key!r} is not in the weights",
                    at=self._program.variant.target,
                    hint="compile the model again",
                )
            self.machine.table[number] = address + self.layout.shift[number]
