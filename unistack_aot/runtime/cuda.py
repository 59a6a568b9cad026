"""Running a CUDA variant through pycuda: module, arena, prepared launches on one stream.

Not here: the order of steps (steps.py), the emulator that may stand in for the driver. Importing
this module needs pycuda and a driver; devices.py does it only when a GPU is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
import pycuda.driver

from unistack_aot.artifact.images import split
from unistack_aot.artifact.manifest import Param, Scanned, Variant
from unistack_aot.artifact.reader import Package
from unistack_aot.base.dtypes import parse_dtype
from unistack_aot.base.errors import BadInput, BadPackage, MissingTool, UnistackError
from unistack_aot.runtime.cuda_events import Events
from unistack_aot.runtime.layout import Layout, value
from unistack_aot.runtime.ports import Port, ports
from unistack_aot.runtime.steps import Run, execute, prepare

Array: TypeAlias = "np.ndarray[Any, Any]"
driver: Any = pycuda.driver  # a C++ module without type information
_ALIGNMENT = 256  # what cuMemAlloc guarantees
_DEFAULT_SHARED = 48 << 10  # more dynamic shared memory than this must be asked for
_LETTERS = {"in": "P", "out": "P", "inout": "P"} | {
    f"{what}{bits}": letter for what in ("dim", "step") for bits, letter in ((32, "i"), (64, "q"))
}
_contexts: dict[int, Any] = {}


class CudaProgram:
    """A CUDA variant made ready: module loaded, constants on the device.

    All plans share one arena and one block for inputs and outputs, so only one may run at a time.
    """

    def __init__(self, package: Package, variant: Variant, context: Any) -> None:
        self.variant = variant
        self.context = context
        self.schedule = prepare(variant.steps)
        self.dims = tuple(dim.name for dim in package.manifest.dims)
        self.arena: Block | None = None
        self.ports: Block | None = None
        # The layout whose once-zeroed buffers are intact. Not the plan, which holds the program: in a cycle both would
        # be freed late, and pycuda frees no memory in a thread that has no context.
        self.in_arena: Layout | None = None
        with self.active():
            self.stream = driver.Stream()
            self.functions = _functions(package, variant)
            self._weights: list[Block] = []
            self.constants = self._constants(package)

    @cached_property
    def events(self) -> Events:
        """What times single launches."""
        return Events()

    def plan(self, layout: Layout) -> CudaPlan:
        """The variant bound to a layout."""
        with self.active():
            return CudaPlan(self, layout)

    @contextmanager
    def active(self) -> Generator[None, None, None]:
        """Make the device's context current for this thread."""
        self.context.push()
        try:
            yield
        finally:
            driver.Context.pop()

    def reserve(self, arena: int, port_bytes: int) -> None:
        """Make the shared blocks at least this large."""
        if self.arena is None or self.arena.nbytes < arena:
            self.arena = None  # freed first: both may not fit at once
            self.arena = Block(arena, "the arena")
            self.in_arena = None
        if self.ports is None or self.ports.nbytes < port_bytes:
            self.ports = None
            self.ports = Block(port_bytes, "inputs and outputs")

    def _constants(self, package: Package) -> dict[str, int]:
        addresses: dict[str, int] = {}
        for member in self.variant.weights:
            data = package.data(member)
            block = Block(len(data), f"weights {member}")
            driver.memcpy_htod(block.address, np.frombuffer(data, np.uint8))
            self._weights.append(block)
            package.forget(member)
            start = np.frombuffer(data, np.uint8).ctypes.data
            for key, tensor in package.tensors(member).items():
                inside = np.frombuffer(tensor.data, np.uint8).ctypes.data if tensor.data else start
                addresses[key] = block.address + inside - start
        return addresses


class Block:
    """Device memory of at least one byte; freed with the object."""

    def __init__(self, nbytes: int, what: str) -> None:
        try:
            self._allocation = driver.mem_alloc(max(1, nbytes))
        except driver.Error as error:
            raise UnistackError(
                f"{nbytes} bytes of GPU memory for {what} could not be allocated ({error})",
                hint="use smaller dimensions, or free memory on the GPU",
            ) from error
        self.address = int(self._allocation)
        self.nbytes = nbytes


STEP = object()
"""Stands for the number of a step among the arguments of a kernel."""


@dataclass(frozen=True, slots=True)
class Call:
    """A launch with all it needs; `runs`: once for each of these steps, in order."""

    function: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: tuple[Any, ...]
    runs: range | None


def _argument(param: Param, dims: Mapping[str, int]) -> Any:
    """A dimension, or `STEP`; None for a pointer, which the launch knows."""
    if param.kind.startswith("dim"):
        return dims[param.name]
    return STEP if param.kind.startswith("step") else None


class CudaMachine:
    """The device addresses of a plan, and what steps do with them (`steps.Machine`)."""

    def __init__(self, program: CudaProgram, layout: Layout) -> None:
        self._program = program
        self._layout = layout
        self._stream = program.stream
        self.table = [0] * len(program.variant.buffers)
        self.timings: list[tuple[int, float]] | None = None
        self.clock: Callable[[], float] | None = None
        self._calls: list[Call | None] = []

    def fix_launches(self) -> None:
        """Evaluate grids and arguments, once the table is complete."""
        dims = self._layout.dims
        self._calls = []
        for launch in self._program.variant.launches:
            kernel = self._program.variant.kernels[launch.kernel]
            grid = tuple(value(extent, dims) for extent in kernel.grid)
            block = tuple(value(extent, dims) for extent in kernel.block)
            shared = value(kernel.shared_bytes, dims)
            pointers = (self.table[buffer] for buffer in launch.buffers)
            arguments = [_argument(p, dims) for p in kernel.params]
            arguments = [next(pointers) if a is None else a for a in arguments]
            function = self._program.functions[launch.kernel]
            if shared > _DEFAULT_SHARED:
                limit = driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                function.set_attribute(limit, shared)
            # A grid without blocks computes nothing, and the driver refuses it.
            runs = range(value(kernel.steps, dims)) if kernel.steps else None
            call = Call(function, grid, block, shared, tuple(arguments), runs)
            self._calls.append(call if prod(grid) else None)

    def run(self, run: Run) -> None:
        """Launch in order; while `timings` is a list, wait for each."""
        for number in run.launches:
            call = self._calls[number]
            try:
                if self.timings is None:
                    self._launch(call)
                else:
                    self.timings.append((number, self._timed(call)))
            except driver.Error as error:
                raise self._failed(number, error) from error

    def copy(self, source: int, target: int) -> None:
        """Copy a whole buffer."""
        nbytes = self._layout.nbytes[target]
        if nbytes and self.table[source] != self.table[target]:
            driver.memcpy_dtod_async(self.table[target], self.table[source], nbytes, self._stream)

    def zero(self, buffer: int) -> None:
        """Fill a buffer with zero bytes."""
        if self._layout.nbytes[buffer]:
            driver.memset_d8_async(self.table[buffer], 0, self._layout.nbytes[buffer], self._stream)

    def read(self, buffer: int) -> int:
        """The value of an integer or bool scalar; waits for everything before."""
        scalar = self._scalar(buffer)
        driver.memcpy_dtoh_async(scalar, self.table[buffer], self._stream)
        self._stream.synchronize()
        return int(scalar[0])

    def write(self, buffer: int, number: int) -> None:
        """Set an integer or bool scalar."""
        scalar = self._scalar(buffer)
        scalar[0] = number
        driver.memcpy_htod_async(self.table[buffer], scalar, self._stream)
        self._stream.synchronize()  # the scalar must live until it is copied

    def take(self, scanned: Scanned, index: int) -> None:
        """Copy slice ``index`` out of the stacked buffer."""
        outer, extent, inner = self._slices(scanned)
        place = self.table[scanned.stacked] + index * inner
        self._copy_rows(place, extent * inner, self.table[scanned.slice], inner, outer, inner)

    def put(self, scanned: Scanned, index: int) -> None:
        """Copy the slice into place ``index`` of the stacked buffer."""
        outer, extent, inner = self._slices(scanned)
        place = self.table[scanned.stacked] + index * inner
        self._copy_rows(self.table[scanned.slice], inner, place, extent * inner, outer, inner)

    def extent(self, buffer: int, axis: int) -> int:
        """Size of a buffer along an axis."""
        return self._layout.shapes[buffer][axis]

    def value(self, expression: str) -> int:
        """Value of a dimension expression."""
        return value(expression, self._layout.dims)

    def _timed(self, call: Call | None) -> float:
        """Seconds of a launch: between two events on the GPU, or by the host's `clock` if one was given."""
        if self.clock is not None:
            begin = self.clock()
            self._launch(call)
            self._stream.synchronize()
            return self.clock() - begin
        return self._program.events.seconds(self._stream, partial(self._launch, call))

    def _launch(self, call: Call | None) -> None:
        if call is None:
            return
        start = partial(call.function.prepared_async_call, call.grid, call.block, self._stream)
        if call.runs is None:
            start(*call.arguments, shared_size=call.shared)
            return
        for step in call.runs:
            told = (step if argument is STEP else argument for argument in call.arguments)
            start(*told, shared_size=call.shared)

    def _copy_rows(
        self, source: int, source_pitch: int, target: int, target_pitch: int, rows: int, width: int
    ) -> None:
        # Row by row: the compiler slices along axis 0, which is one row.
        for row in range(rows if width else 0):
            driver.memcpy_dtod_async(
                target + row * target_pitch, source + row * source_pitch, width, self._stream
            )

    def _slices(self, scanned: Scanned) -> tuple[int, int, int]:
        """Rows before the axis, its extent, and bytes after it."""
        shape = self._layout.shapes[scanned.stacked]
        outer, extent = prod(shape[: scanned.axis]), shape[scanned.axis]
        return outer, extent, self._layout.nbytes[scanned.stacked] // max(1, outer * extent)

    def _scalar(self, buffer: int) -> Array:
        dtype = self._program.variant.buffers[buffer].dtype
        return np.zeros(1, parse_dtype(dtype).numpy)

    def _failed(self, number: int, error: Exception) -> UnistackError:
        variant = self._program.variant
        kernel = variant.kernels[variant.launches[number].kernel]
        return UnistackError(
            f"kernel {kernel.symbol} of {variant.target} failed: {error}",
            at=", ".join(kernel.origins) or None,
            hint="run `unistack-aot check` on the package, on the emulator too",
        )


class CudaPlan:
    """A program with fixed shapes. `run` is not re-entrant: the session holds a lock."""

    def __init__(self, program: CudaProgram, layout: Layout) -> None:
        self.layout = layout
        self.machine = CudaMachine(program, layout)
        self._program = program
        self._inputs = ports(program.variant, layout, "input")
        self._outputs = ports(program.variant, layout, "output")
        self._port_bytes = _ALIGNMENT + sum(
            -(-port.nbytes // _ALIGNMENT) * _ALIGNMENT for port in (*self._inputs, *self._outputs)
        )
        self._measured = tuple((m.dim, m.buffer) for m in program.variant.measured)
        self._bound: tuple[Block | None, Block | None] = (None, None)
        program.reserve(layout.arena.peak, self._port_bytes)

    def run(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, int]]:
        """Fresh host arrays by name, and the dimensions measured during the run."""
        with self._program.active():
            try:
                return self._run(inputs)
            except driver.Error as error:
                raise UnistackError(
                    f"the GPU reported an error: {error}",
                    at=self._program.variant.target,
                    hint="Session.profile waits after each kernel and names the one that fails",
                ) from error

    def _run(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, int]]:
        program, machine, stream = self._program, self.machine, self._program.stream
        if self._bound != (program.arena, program.ports):
            self._point()
        kept = [np.ascontiguousarray(inputs[port.name]) for port in self._inputs]
        for port, array in zip(self._inputs, kept, strict=True):
            if port.nbytes:
                driver.memcpy_htod_async(self._address(port), array, stream)
        if program.in_arena is not self.layout:
            for number in program.schedule.zeroed_once:
                machine.zero(number)
            program.in_arena = self.layout
        execute(program.schedule.block, machine)
        outputs = {port.name: np.empty(port.shape, port.dtype) for port in self._outputs}
        for port in self._outputs:
            if port.nbytes:
                driver.memcpy_dtoh_async(outputs[port.name], self._address(port), stream)
        measured = {dim: machine.read(buffer) for dim, buffer in self._measured}
        stream.synchronize()
        return outputs, measured

    def _address(self, port: Port) -> int:
        return self.machine.table[port.entries[0][0]] - port.entries[0][1]

    def _point(self) -> None:
        """Fill the table with addresses in the shared blocks and the weights."""
        program, layout, table = self._program, self.layout, self.machine.table
        assert program.arena is not None and program.ports is not None
        buffers = program.variant.buffers
        for number, root in enumerate(layout.root):
            if layout.offset[root] >= 0:
                table[number] = program.arena.address + layout.offset[root] + layout.shift[number]
            elif buffers[root].kind == "constant":
                start = program.constants.get(buffers[root].key)
                if start is None:
                    raise BadPackage(
                        f"constant {buffers[root].key!r} is not in the weights",
                        at=program.variant.target,
                        hint="compile the model again",
                    )
                table[number] = start + layout.shift[number]
        place = program.ports.address
        for port in (*self._inputs, *self._outputs):
            for number, shift in port.entries:
                table[number] = place + shift
            place += -(-port.nbytes // _ALIGNMENT) * _ALIGNMENT
        self.machine.fix_launches()
        self._bound = (program.arena, program.ports)


def open_program(package: Package, kind: str, index: int) -> CudaProgram:
    """The variant for GPU ``index`` ("cuda"), or the first one for the "emulator"."""
    context, generation = _context(index)
    variants = [v for v in package.manifest.variants if v.target.partition(":")[0] == kind]
    if kind == "emulator":
        return CudaProgram(package, variants[0], context)
    fitting = [v for v in variants if _runs_on(v.target, generation)]
    if not fitting:
        raise BadPackage(
            f"GPU {index} is sm_{generation}, the package has "
            f"{', '.join(v.target for v in variants)}",
            at=package.path,
            hint=f"compile with --target cuda:sm_{generation}",
        )
    return CudaProgram(package, max(fitting, key=lambda v: _generation(v.target)), context)


def generations() -> tuple[int, ...]:
    """The generation (as 90) of every GPU, by number."""
    with _driver_errors():
        driver.init()
        found = [driver.Device(k).compute_capability() for k in range(driver.Device.count())]
    return tuple(10 * major + minor for major, minor in found)


def host_copy(given: object, name: str) -> Array:
    """A host array with the content of an object that has ``__cuda_array_interface__``."""
    interface: dict[str, Any] = given.__cuda_array_interface__  # type: ignore[attr-defined]
    array = np.empty(interface["shape"], np.dtype(interface["typestr"]))
    if interface.get("strides") not in (None, array.strides):
        raise BadInput(
            f"input {name!r} is a strided array on the GPU", hint="make it contiguous first"
        )
    context, _ = _context(0)
    context.push()
    try:
        driver.Context.synchronize()
        if array.nbytes:
            driver.memcpy_dtoh(array, interface["data"][0])
    except driver.Error as error:
        raise BadInput(
            f"input {name!r} cannot be read from the GPU ({error})", hint="give a numpy array"
        ) from error
    finally:
        driver.Context.pop()
    return array


def _context(index: int) -> tuple[Any, int]:
    """The primary context of a GPU (shared with other libraries) and its generation, as 90."""
    with _driver_errors():
        driver.init()
        count = driver.Device.count()
        if index >= count:
            raise BadInput(
                f"there is no GPU {index}, this machine has {count}",
                hint="use a smaller number, or device='cpu'",
            )
        device = driver.Device(index)
        if index not in _contexts:
            _contexts[index] = device.retain_primary_context()
        major, minor = device.compute_capability()
    return _contexts[index], 10 * major + minor


@contextmanager
def _driver_errors() -> Generator[None, None, None]:
    """Errors inside mean that the driver cannot be used."""
    try:
        yield
    except driver.Error as error:
        raise MissingTool(
            f"the CUDA driver cannot be used ({error})",
            hint="check nvidia-smi, or use device='cpu'",
        ) from error


def _functions(package: Package, variant: Variant) -> tuple[Any, ...]:
    """The prepared functions of all kernels, by number."""
    try:
        modules = [driver.module_from_buffer(each) for each in split(package.data(variant.code))]
    except (driver.Error, ValueError) as error:
        raise BadPackage(
            f"the driver refuses the machine code of {variant.target} ({error})",
            at=variant.code,
            hint="update the NVIDIA driver, or compile for this GPU",
        ) from error
    found: list[Any] = []
    for kernel in variant.kernels:
        function = next(filter(None, (_function(each, kernel.symbol) for each in modules)), None)
        if function is None:
            raise BadPackage(
                f"kernel {kernel.symbol} is not in {variant.code}", hint="compile the model again"
            )
        function.prepare("".join(_LETTERS[param.kind] for param in kernel.params))
        found.append(function)
    return tuple(found)


def _function(module: Any, symbol: str) -> Any:
    """A module's function; None if it is in another module."""
    try:
        return module.get_function(symbol)
    except driver.Error:
        return None


def _generation(target: str) -> int:
    digits = target.rpartition("sm_")[2].rstrip("af")
    return int(digits) if digits.isdecimal() else 0


def _runs_on(target: str, generation: int) -> bool:
    """Whether a cubin runs: same major generation and not newer; "sm_90a" on exactly its own."""
    built = _generation(target)
    if target.endswith("a"):
        return built == generation
    return built // 10 == generation // 10 and built <= generation
