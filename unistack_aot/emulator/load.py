"""Puts the emulated driver into this process, ahead of pycuda, and talks to it.

Not here: building it (build.py), what the counters mean (counters.py).
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unistack_aot.base.environment import environment
from unistack_aot.base.errors import Unsupported

from .build import driver_library
from .counters import FIELD_COUNT, LaunchCounters, decode

Order = Literal["forward", "reverse", "random"]
_ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")
_active: list[Emulator] = []


@dataclass(frozen=True, slots=True)
class Emulator:
    """The emulated driver of this process. All settings hold from the next launch on."""

    library: ctypes.CDLL

    def set_order(self, order: Order, seed: int = 1) -> None:
        """Chooses the order in which ready threads run; a correct kernel does not care."""
        self._set("order", _ORDERS.index(order))
        self._set("seed", seed)

    def set_generation(self, sm: int) -> None:
        """The compute capability x 10 that the device reports."""
        self._set("generation", sm)

    def set_workers(self, count: int) -> None:
        """How many processor threads run blocks; 0 means one per processor."""
        self._set("workers", count)

    def set_counting(self, on: bool) -> None:
        """Records traffic of checked kernels; allocations become 256-byte aligned as on a GPU.

        With counting off, an allocation ends at a guard page instead.
        """
        self._set("count", int(on))
        self._set("tight_guard", int(not on))

    def set_checking(self, on: bool) -> None:
        """Looks for races, uninitialised reads, bad addresses in checked kernels (default on)."""
        self._set("check", int(on))

    def set_strict_exit(self, on: bool) -> None:
        """Makes it an error when a thread leaves before a barrier that others reach."""
        self._set("strict_exit", int(on))

    def set_lazy_streams(self, on: bool) -> None:
        """Work on a stream waits until something synchronises: shows missing synchronisation."""
        self._set("lazy", int(on))

    def last_error(self) -> str:
        """What went wrong in the last failed launch, with kernel, block and thread; else empty."""
        return self.library.ua_emu_last_error().decode()

    def forget_error(self) -> None:
        """Lets the context work again after a failed launch."""
        self.library.ua_emu_forget_error()

    def counters(self) -> tuple[LaunchCounters, ...]:
        """Traffic of every counted launch since clear_counters, oldest first."""
        name = ctypes.create_string_buffer(256)
        values = (ctypes.c_uint64 * FIELD_COUNT)()
        found: list[LaunchCounters] = []
        for index in range(self.library.ua_emu_record_count()):
            available = self.library.ua_emu_record(index, name, len(name), values, FIELD_COUNT)
            if available != FIELD_COUNT:
                raise AssertionError(f"the driver counts {available} fields, not {FIELD_COUNT}")
            found.append(decode(name.value.decode(), iter(values)))
        return tuple(found)

    def clear_counters(self) -> None:
        """Forgets the traffic recorded so far."""
        self.library.ua_emu_clear_records()

    def _set(self, name: str, value: int) -> None:
        if self.library.ua_emu_set(name.encode(), value):
            raise AssertionError(f"the emulated driver has no setting {name!r}")


def activate(cache_dir: Path | None = None) -> Emulator:
    """Loads the emulated driver (built on demand) so that pycuda, imported later, binds to it.

    Refuses when a real driver or pycuda is loaded already: a process has one driver.
    """
    if _active:
        return _active[0]
    if "pycuda._driver" in sys.modules:
        raise Unsupported(
            "pycuda is already loaded, so the emulator can not take its driver's place",
            hint="choose the emulator before anything imports pycuda, or use a new process",
        )
    if (loaded := _loaded_driver()) is not None:
        raise Unsupported(
            "a CUDA driver is already loaded in this process",
            at=loaded,
            hint="use the emulator in a process of its own",
        )
    path = driver_library(environment().cache if cache_dir is None else cache_dir)
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    library.ua_emu_set.argtypes = (ctypes.c_char_p, ctypes.c_long)
    library.ua_emu_last_error.restype = ctypes.c_char_p
    library.ua_emu_record_count.restype = ctypes.c_size_t
    library.ua_emu_record.restype = ctypes.c_size_t
    library.ua_emu_record.argtypes = (
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_size_t,
    )
    _active.append(Emulator(library))
    return _active[0]


def active() -> Emulator | None:
    """The emulated driver of this process, if activate was called."""
    return _active[0] if _active else None


def _loaded_driver() -> str | None:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    for line in maps.read_text().splitlines():
        if "/libcuda.so" in line:
            return line.split(maxsplit=5)[5]
    return None
