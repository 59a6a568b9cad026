"""Loading a CPU variant's shared library from memory. Not here: calling it (cpu.py).

A library is never unloaded: threads of its pool may sleep inside it, and unloading would pull the
code from under them. Equal code is loaded once per process.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from threading import Lock
from typing import Any, Protocol

from unistack_aot.artifact.manifest import Variant
from unistack_aot.artifact.reader import Package
from unistack_aot.base.errors import BadPackage, UnistackError

ABI = 1
_loaded: dict[str, ctypes.CDLL] = {}
_lock = Lock()
# a fork waits until no other thread is loading: the child finds the lock free
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


class RunFunction(Protocol):
    """``int ua_run(const int32_t*, int n, void* const* buffers, const int64_t* dims, int)``."""

    def __call__(self, launches: Any, count: int, buffers: Any, dims: Any, threads: int) -> int:
        """Run launches by number, in order; 0 is success."""
        ...


def run_function(package: Package, variant: Variant) -> RunFunction:
    """``ua_run`` of the variant's code; `BadPackage` if its ABI is not ours."""
    code = package.data(variant.code)
    digest = next(m.sha256 for m in package.manifest.members if m.name == variant.code)
    with _lock:
        library = _loaded.get(digest)
        if library is None:
            library = _loaded[digest] = _load(bytes(code), variant)
    return _checked(library, variant)


def _load(code: bytes, variant: Variant) -> ctypes.CDLL:
    name = f"unistack_aot-{variant.target.replace(':', '-')}"
    try:
        if hasattr(os, "memfd_create"):
            # Not closed: the loader recognises libraries by path, so the number must stay taken.
            handle = os.memfd_create(name, os.MFD_CLOEXEC)
            with open(handle, "wb", closefd=False) as file:
                file.write(code)
            return ctypes.CDLL(f"/proc/self/fd/{handle}")
        with tempfile.NamedTemporaryFile(prefix=name, suffix=".so") as file:
            file.write(code)
            file.flush()
            return ctypes.CDLL(file.name)
    except OSError as error:
        raise UnistackError(
            f"the machine code of {variant.target} cannot be loaded ({error})",
            hint="this needs Linux with the C library the package was built for, or a newer one",
        ) from error


def _checked(library: ctypes.CDLL, variant: Variant) -> RunFunction:
    try:
        abi = int(library.ua_abi())
        function = library.ua_run
    except AttributeError as error:
        raise BadPackage(
            f"member {variant.code!r} lacks ua_abi or ua_run", hint="compile the model again"
        ) from error
    if abi != ABI:
        raise BadPackage(
            f"the machine code speaks ABI {abi}, this runtime speaks {ABI}",
            at=variant.code,
            hint="install the unistack_aot that compiled the package, or compile it again",
        )
    # No argtypes: arguments are ctypes arrays and small ints, and conversion costs time per call.
    function.restype = ctypes.c_int
    return function
