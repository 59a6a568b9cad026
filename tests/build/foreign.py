"""AArch64 machine code under qemu, called as if this process had loaded it. Not here: any test.

Needs a cross compiler (aarch64-linux-gnu-g++ and its C library) and qemu-aarch64.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from unistack_aot.artifact.manifest import Variant
from unistack_aot.artifact.reader import Package
from unistack_aot.runtime.layout import lay_out

COMPILER = "aarch64-linux-gnu-g++"
ROOT = "/usr/aarch64-linux-gnu"
Array = np.ndarray[Any, Any]
Place = tuple[int, int]  # number of a region, bytes from its start


def why_not() -> str | None:
    """What is missing to run AArch64 code here, or None."""
    if shutil.which(COMPILER) is None:
        return f"no cross compiler for aarch64 ({COMPILER})"
    if _qemu() is None:
        return "no emulator of aarch64 (qemu-aarch64 or qemu-aarch64-static)"
    return None


class ForeignLibrary:
    """A shared library of AArch64: its functions take what ctypes functions take (pointers to whole arrays)."""

    def __init__(self, library: Path, folder: Path) -> None:
        helper = folder / "foreign"
        source = str(Path(__file__).with_name("foreign.cpp"))
        flags = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror")
        subprocess.run([COMPILER, *flags, source, "-o", str(helper), "-ldl"], check=True)
        command = [str(_qemu()), "-L", ROOT, str(helper), str(library)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lock = Lock()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def __getattr__(self, name: str) -> ForeignFunction:
        """A function of the library, always the same object, so that `restype` may be set."""
        function = ForeignFunction(self, name)
        setattr(self, name, function)
        return function

    def call(
        self,
        name: str,
        regions: list[tuple[int, int]],
        pointers: list[tuple[Place, Place]],
        arguments: list[tuple[int, int]],
    ) -> int:
        """Copy regions (address, bytes) over, store pointers in them, call, and copy the regions back."""
        parts = [_numbers(len(name)), name.encode(), _numbers(len(regions))]
        for address, nbytes in regions:
            parts += [_numbers(nbytes, address % 64), ctypes.string_at(address, nbytes)]
        parts += [_numbers(len(pointers)), *(_numbers(*at, *to) for at, to in pointers)]
        parts += [_numbers(len(arguments)), *(_numbers(*each) for each in arguments)]
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        with self._lock:
            to.write(b"".join(parts))
            to.flush()
            answer = back.read(8 + sum(nbytes for _, nbytes in regions))
        assert len(answer) == 8 + sum(nbytes for _, nbytes in regions), f"{name}: the process ended"
        at = 8
        for address, nbytes in regions:
            data = answer[at : at + nbytes]
            if ctypes.string_at(address, nbytes) != data:  # constants may not even be written
                ctypes.memmove(address, data, nbytes)
            at += nbytes
        return int(struct.unpack("<q", answer[:8])[0])


class ForeignFunction:
    """One function: arguments as ctypes takes them, the result an integer."""

    def __init__(self, library: ForeignLibrary, name: str) -> None:
        self._library, self._name = library, name
        self.restype: Any = ctypes.c_int

    def __call__(self, *given: Any) -> int:
        """Call it; arrays are those whose address `ndarray.ctypes.data_as` gave."""
        regions: list[tuple[int, int]] = []
        arguments: list[tuple[int, int]] = []
        for each in given:
            if isinstance(each, ctypes.c_void_p):
                array: Array = each._arr  # type: ignore[attr-defined]
                regions.append((array.ctypes.data, array.nbytes))
                arguments.append((2, len(regions) - 1))
            elif isinstance(each, ctypes.c_float):
                arguments.append((1, struct.unpack("<i", struct.pack("<f", each.value))[0]))
            else:
                arguments.append((0, int(getattr(each, "value", each))))
        result = self._library.call(self._name, regions, [], arguments)
        return int(self.restype(result).value)


def foreign_run(
    package: Package, variant: Variant, folder: Path
) -> tuple[ForeignLibrary, Callable[..., int]]:
    """A variant's code under qemu, and its `ua_run`: takes the place of `runtime.cpu.run_function`."""
    code = folder / "code.so"
    code.write_bytes(bytes(package.data(variant.code)))
    library = ForeignLibrary(code, folder)
    names = [dim.name for dim in package.manifest.dims]

    def ua_run(launches: Any, count: int, table: Any, dims: Any, threads: int) -> int:
        sizes = lay_out(variant, dict(zip(names, dims, strict=False))).nbytes
        buffers = [(int(p or 0), n) for p, n in zip(table, sizes, strict=False)]
        regions, places = _regions(buffers)
        owned = [(ctypes.addressof(each), ctypes.sizeof(each)) for each in (launches, table, dims)]
        first = len(regions)
        pointers = [((first + 1, 8 * number), place) for number, place in places.items()]
        kept = list(table)
        arguments = [(2, first), (0, count), (2, first + 1), (2, first + 2), (0, threads)]
        code = library.call("ua_run", [*regions, *owned], pointers, arguments)
        table[:] = kept
        return int(ctypes.c_int(code).value)

    return library, ua_run


def _regions(buffers: list[Place]) -> tuple[list[tuple[int, int]], dict[int, Place]]:
    """Disjoint stretches of memory that hold all buffers, and where in them each buffer lies."""
    regions: list[tuple[int, int]] = []
    places: dict[int, Place] = {}
    for number, (address, nbytes) in sorted(enumerate(buffers), key=lambda item: item[1]):
        if not address or not nbytes:
            continue
        start, size = regions[-1] if regions else (0, 0)
        if regions and address < start + size:
            regions[-1] = (start, max(size, address + nbytes - start))
        else:
            regions.append((address, nbytes))
        places[number] = (len(regions) - 1, address - regions[-1][0])
    return regions, places


def _numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _qemu() -> str | None:
    return shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
