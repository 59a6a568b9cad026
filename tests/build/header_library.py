"""The headers of generated C++ as a library for ctypes, and the arrays that its functions take."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.build.foreign import COMPILER, ForeignLibrary, why_not
from unistack_aot.targets.cpu.build import LEVELS

Array = npt.NDArray[Any]

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "unistack_aot" / "targets" / "cpu" / "include"
SOURCE = Path(__file__).with_name("cpu_headers.cpp")
FLAGS = [
    *("-std=c++17", "-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"),
    *("-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread"),
]

ISAS = [
    pytest.param("x86-64-v2", marks=pytest.mark.slow),
    "x86-64-v3",
    "x86-64-v4",
    pytest.param("aarch64", marks=pytest.mark.slow),
]


def runs_here(isa: str) -> bool:
    """Whether this machine can execute code for `isa`."""
    if platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists():
        return False
    flags = set(Path("/proc/cpuinfo").read_text().split())
    need = {
        "x86-64-v2": {"sse4_2"},
        "x86-64-v3": {"avx2", "fma", "f16c"},
        "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    }[isa]
    return need <= flags


def loaded(isa: str, folder: Path) -> Iterator[Any]:
    """The library for one instruction set, while it is in use; skips where no machine runs it."""
    if isa == "aarch64":
        if reason := why_not():
            pytest.skip(reason)
        foreign = ForeignLibrary(
            build(COMPILER, LEVELS[isa].march, folder / f"{isa}.so", "-shared"), folder
        )
        yield foreign
        foreign.close()
    elif runs_here(isa):
        yield ctypes.CDLL(str(build("g++", isa, folder / f"{isa}.so", "-shared")))
    else:
        pytest.skip(f"this machine cannot run {isa}")


def build(compiler: str, march: str, out: Path, *flags: str) -> Path:
    command = [compiler, *FLAGS, f"-march={march}", f"-I{INCLUDE}", *flags]
    done = subprocess.run(
        [*command, str(SOURCE), "-o", str(out)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


def ptr(a: Array) -> ctypes.c_void_p:
    """The address of `a`; the result keeps a temporary array alive for the call."""
    return a.ctypes.data_as(ctypes.c_void_p)


def f32(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def aligned(a: Array) -> Array:
    """A copy of `a` whose first byte is 64-byte aligned, as weights in a package are."""
    raw = np.empty(a.size + 16, np.float32)
    skip = (-raw.ctypes.data % 64) // 4
    out = raw[skip : skip + a.size].reshape(a.shape)
    out[...] = a
    return out
