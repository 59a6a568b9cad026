"""One GPU, real or emulated, through pycuda: build, launch, time, count traffic."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from probe_suite import samples, toolchain
from probe_suite.gpu.kernel import GpuKernel, number
from probe_suite.probe import NotHere, Setting
from probe_suite.record import Seen
from unistack_aot.base.errors import BadInput, MissingTool
from unistack_aot.emulator.build import compile_kernels
from unistack_aot.emulator.counters import LaunchCounters
from unistack_aot.emulator.load import Emulator, activate

DEVICE_HEADERS = Path(__file__).parents[2] / "unistack_aot" / "targets" / "cuda" / "include"
Dim = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Built:
    """A loaded kernel; `seen` proves its instruction where machine code exists (None on the
    emulator).
    """

    function: Any
    seen: Seen | None


@dataclass(frozen=True, slots=True)
class Gpu:
    """An open device with a current context."""

    cuda: ModuleType
    arch: str
    emulator: Emulator | None
    scratch: Path

    @property
    def emulated(self) -> bool:
        """True when kernels run on the CPU: function and traffic are real, times mean nothing."""
        return self.emulator is not None

    def build(self, kernel: GpuKernel) -> Built:
        """Compile, prove and load one kernel; NotHere when the generation lacks its instruction."""
        if not kernel.offered(self.arch):
            raise NotHere(f"{self.arch} has no {kernel.sass}")
        if self.emulator is not None:
            image = self.scratch / f"{kernel.label}.so"
            compile_kernels(
                kernel.text(), image, number(self.arch), (DEVICE_HEADERS, toolchain.INCLUDE), True
            )
            return Built(self._load(image, kernel.entry), None)
        cubin, seen = build_and_prove(kernel, self.arch, self.scratch)
        return Built(self._load(cubin, kernel.entry), seen)

    def attribute(self, name: str) -> int | None:
        """Return a device attribute by its driver name, or None when pycuda does not know it."""
        found = getattr(self.cuda.device_attribute, name, None)
        return None if found is None else int(self.cuda.Context.get_device().get_attribute(found))

    def put(self, array: np.ndarray) -> Any:
        """Copy an array to the device; the allocation lives as long as the returned object."""
        pointer = self.cuda.mem_alloc(array.nbytes)
        self.cuda.memcpy_htod(pointer, array)
        return pointer

    def get(self, pointer: Any, count: int, dtype: Any = np.float32) -> np.ndarray:
        """Copy `count` elements back."""
        array = np.empty(count, dtype)
        self.cuda.memcpy_dtoh(array, pointer)
        return array

    def launch(self, built: Built, grid: int, block: int, *arguments: Any, shared: int = 0) -> None:
        """Start one launch; integers are passed as int, floats as float, long lists not at all."""
        built.function(
            *map(_argument, arguments), grid=(grid, 1), block=(block, 1, 1), shared=shared
        )

    def traffic(
        self, built: Built, grid: int, block: int, *arguments: Any, shared: int = 0
    ) -> LaunchCounters:
        """Launch once on the emulator and return what moved."""
        assert self.emulator is not None, "only the emulator counts"
        self.emulator.set_counting(True)
        self.emulator.clear_counters()
        self.launch(built, grid, block, *arguments, shared=shared)
        self.cuda.Context.synchronize()
        return self.emulator.counters()[-1]

    def time(
        self, built: Built, grid: int, block: int, *arguments: Any, shared: int = 0, turns: int = 1
    ) -> samples.Samples:
        """Return seconds of one launch between two events, the mean of `turns` in a row."""
        start, end = self.cuda.Event(), self.cuda.Event()

        def once() -> float:
            start.record()
            for _ in range(turns):
                self.launch(built, grid, block, *arguments, shared=shared)
            end.record()
            end.synchronize()
            return start.time_till(end) * 1e-3 / turns

        once()
        return samples.repeat(once, budget_s=0.5)

    def _load(self, image: Path, entry: str) -> Any:
        function = self.cuda.module_from_buffer(image.read_bytes()).get_function(entry)
        optin = self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        if optin and not self.emulated:
            attribute = self.cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            function.set_attribute(attribute, optin)
        return function


def build_and_prove(kernel: GpuKernel, arch: str, folder: Path) -> tuple[Path, Seen]:
    """Compile one kernel for `arch` without a GPU and require its instruction in the SASS."""
    cubin = folder / f"{kernel.label}.{arch}.cubin"
    toolchain.build_cubin(kernel.text(), cubin, arch, (DEVICE_HEADERS,))
    return cubin, toolchain.see_cuda(cubin, kernel.entry, kernel.sass, kernel.least)


def open_gpu(setting: Setting) -> Gpu:
    """Open the setting's device in this process."""
    kind, _, which = setting.device.partition(":")
    emulator = activate() if kind == "emulator" else None
    if emulator is not None:
        emulator.set_generation(number(which))
    cuda = driver()
    cuda.init()
    index = 0 if kind == "emulator" else int(which or 0)
    if index >= cuda.Device.count():
        raise BadInput(f"there is no device {setting.device}", hint=f"{cuda.Device.count()} found")
    cuda.Device(index).make_context()
    return Gpu(cuda, setting.arch, emulator, setting.scratch)


def arch_of(device: str) -> str:
    """Return the generation of a device name: "emulator:sm_90" says it, "cuda:0" is asked."""
    kind, _, which = device.partition(":")
    if kind == "emulator":
        if not which.startswith("sm_"):
            raise BadInput(f"'{device}' does not say a generation", hint="write emulator:sm_90")
        return which
    cuda = driver()
    cuda.init()
    major, minor = cuda.Device(int(which or 0)).compute_capability()
    return f"sm_{major}{minor}"


def driver() -> ModuleType:
    """Return pycuda.driver; MissingTool when pycuda or a CUDA driver is not here."""
    try:
        return import_module("pycuda.driver")
    except ImportError as error:
        raise MissingTool(
            f"pycuda cannot be loaded: {error}",
            hint="pip install 'unistack-aot[cuda]' on a machine with an NVIDIA driver",
        ) from error


def _argument(value: Any) -> Any:
    if isinstance(value, int):
        return np.int32(value)
    return np.float32(value) if isinstance(value, float) else value
