"""Which device a package runs on, and why. Not here: running on it (cpu.py, cuda.py).

This is the one place that imports by name: the CUDA backend (it needs pycuda) only when a GPU is
asked for, and the emulator (a layer beside this one) only for device "emulator".
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from unistack_aot.artifact.manifest import Variant
from unistack_aot.artifact.reader import Package
from unistack_aot.base.errors import (
    BadInput,
    BadPackage,
    MissingTool,
    UnistackError,
    Unsupported,
)
from unistack_aot.runtime.cpu import CpuProgram
from unistack_aot.runtime.processor import best_variant, this_processor

_CUDA_BACKEND = "unistack_aot.runtime.cuda"
_hooks: dict[str, str | Callable[[], object]] = {"emulator": "unistack_aot.emulator.load:activate"}
_ELSEWHERE = (
    "measure where such a GPU is and bring the folder of times here (--tune 0 --tuning DIR), "
    "or leave this target out"
)
_GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The program on its device ("cpu", "cuda:0", "emulator") and the reason for that device."""

    device: str
    reason: str
    program: Any  # CpuProgram or cuda.CudaProgram


def register_device_hook(name: str, hook: Callable[[], object]) -> None:
    """Have ``hook`` called before device ``name`` is first used (the emulator loads its driver)."""
    _hooks[name] = hook


def choose(package: Package, device: str, threads: int) -> Chosen:
    """The program for "cpu", "cuda", "cuda:N", "emulator" or "auto" (a GPU if there is one)."""
    if device == "auto":
        return _automatic(package, threads)
    kind, _, number = device.partition(":")
    if kind == "cpu" and not number:
        return Chosen("cpu", "asked for", _cpu(package, threads))
    if kind == "cuda" and (number.isdecimal() or device == "cuda"):
        index = int(number or 0)
        return Chosen(f"cuda:{index}", "asked for", _cuda(package, "cuda", index))
    if device == "emulator":
        return Chosen("emulator", "asked for", _cuda(package, "emulator", 0))
    raise BadInput(f"there is no device {device!r}", hint="use auto, cpu, cuda, cuda:N or emulator")


def device_array(given: object, name: str) -> Any:
    """A host copy of an object with ``__cuda_array_interface__``."""
    return _backend().host_copy(given, name)


def gpu_present() -> bool:
    """Whether the system shows an NVIDIA GPU; the emulator's driver does not count."""
    return any(Path(file).exists() for file in _GPU_FILES)


def measured_on(target: str) -> str:
    """The device on which times of a target's variants mean something; an error says why there is none here."""
    kind = target.partition(":")[0]
    if kind == "emulator":
        raise BadInput("an emulator has no speed to tune for", at=target, hint=_ELSEWHERE)
    if kind != "cuda":
        return kind
    if driver_is_emulated():
        raise _emulated_already(kind, target)
    if not gpu_present():
        raise BadInput("there is no GPU here to measure on", at=target, hint=_ELSEWHERE)
    level = target.partition(":")[2]
    found = [f"sm_{generation}" for generation in _backend().generations()]
    if level not in found:
        there = ", ".join(f"GPU {k} is {each}" for k, each in enumerate(found)) or "there is none"
        raise BadInput(f"no GPU here is {level}: {there}", at=target, hint=_ELSEWHERE)
    return f"cuda:{found.index(level)}"


def driver_is_emulated() -> bool:
    """Whether the emulator's driver was loaded into this process, by whoever."""
    return os.name == "posix" and hasattr(ctypes.CDLL(None), "ua_emu_last_error")


def _automatic(package: Package, threads: int) -> Chosen:
    if not _variants(package, "cuda"):
        return Chosen("cpu", "the package has no CUDA variant", _cpu(package, threads))
    if not gpu_present():
        return Chosen("cpu", "this machine has no NVIDIA GPU", _cpu(package, threads))
    try:
        return Chosen("cuda:0", "a GPU is present", _cuda(package, "cuda", 0))
    except UnistackError as error:
        reason = f"the GPU cannot be used: {error.what}"
        return Chosen("cpu", reason, _cpu(package, threads))


def _cpu(package: Package, threads: int) -> CpuProgram:
    variant, reasons = best_variant(package.manifest.variants, this_processor())
    if variant is None:
        raise BadPackage(
            "; ".join(reasons) or "the package has no CPU variant",
            at=package.path,
            hint="compile with a target for this processor: --target cpu",
        )
    return CpuProgram(package, variant, threads)


def _cuda(package: Package, kind: str, index: int) -> Any:
    if not _variants(package, kind):
        targets = ", ".join(v.target for v in package.manifest.variants) or "nothing"
        raise BadPackage(
            f"the package has no {kind} variant, only {targets}",
            at=package.path,
            hint=f"compile with --target {kind}",
        )
    if kind == "cuda" and driver_is_emulated():
        raise _emulated_already(f"cuda:{index}", package.path)
    hook = _hooks.get(kind)
    if isinstance(hook, str):
        module, _, function = hook.partition(":")
        try:
            hook = getattr(import_module(module), function)
        except ImportError as error:
            raise MissingTool(
                f"device {kind!r} needs {module}, which is not installed ({error})",
                hint="install the full unistack_aot package",
            ) from error
    if callable(hook):
        hook()
    return _backend().open_program(package, kind, index)


def _emulated_already(device: str, at: object) -> Unsupported:
    return Unsupported(
        f"device {device!r} needs NVIDIA's driver, and this process holds the emulator's",
        at=at,
        hint="a process has one CUDA driver: use the GPU in another process than the emulator",
    )


def _variants(package: Package, kind: str) -> tuple[Variant, ...]:
    return tuple(v for v in package.manifest.variants if v.target.partition(":")[0] == kind)


def _backend() -> Any:
    try:
        return import_module(_CUDA_BACKEND)
    except ImportError as error:
        raise MissingTool(
            f"a GPU needs pycuda and the NVIDIA driver ({error})",
            hint="pip install 'unistack-aot[gpu]' where cuda.h is, or use device='cpu'",
        ) from error
