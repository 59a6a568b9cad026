"""Builds the emulator's driver library and kernel images with the host's C++ compiler.

Not here: loading the library into this process (load.py).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from unistack_aot.base.environment import environment, inherited
from unistack_aot.base.errors import MissingTool, ToolFailed

_HERE = Path(__file__).parent
_LANGUAGE = ("-std=c++17", "-fPIC", "-fvisibility=hidden")
_DRIVER_FLAGS = (*_LANGUAGE, "-O2", "-march=native", "-ftls-model=initial-exec")
# Traps and errno of scalar mathematics do not exist on a GPU; without them loops become vectors.
_KERNEL_FLAGS = (
    *_LANGUAGE,
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-w",
)
_FAST = ("-O3",)
_CHECKED = ("-O1", "-g1", "-fsanitize=thread", "-DUA_EMULATOR_CHECKED=1")


def include_dirs() -> tuple[Path, ...]:
    """The folder with the emulator's own headers, which every kernel build needs."""
    return (_HERE / "include",)


@cache
def host_compiler() -> tuple[str, ...]:
    """The command of a C++17 compiler: UA_CXX, g++, clang++ or the pip package ziglang."""
    given = environment().cxx
    if given is not None:
        return (given,)
    for name in ("g++", "clang++"):
        if shutil.which(name):
            return (name,)
    zig = subprocess.run(
        [sys.executable, "-m", "ziglang", "version"], capture_output=True, check=False
    )
    if zig.returncode == 0:
        return (sys.executable, "-m", "ziglang", "c++")
    raise MissingTool(
        "the emulator needs a C++ compiler and found none",
        hint="install g++ or clang, or: pip install 'unistack-aot[cpu]'",
    )


def driver_library(cache_dir: Path) -> Path:
    """The path of libcuda.so.1 of this source, built into cache_dir unless it is there already."""
    sources = sorted((_HERE / "driver").glob("*.cpp"))
    headers = [*sorted((_HERE / "driver").glob("*.hpp")), _HERE / "include/ua_emulator/abi.h"]
    folder = cache_dir / "emulator" / _digest([*sources, *headers])
    library = folder / "libcuda.so.1"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        objects = [Path(scratch) / f"{source.stem}.o" for source in sources]
        with ThreadPoolExecutor(environment().jobs) as pool:
            for _ in pool.map(_compile_driver_part, sources, objects):
                pass
        part = Path(scratch) / "libcuda.so.1"
        _run("-shared", "-Wl,-soname,libcuda.so.1", "-o", part, *objects, "-lpthread", "-ldl")
        os.replace(part, library)
    return library


def compile_kernels(
    source_text: str,
    out_path: Path,
    sm: int,
    include_dirs: Sequence[Path],
    checked: bool = False,
) -> Path:
    """Builds CUDA text into an image that the emulated driver's cuModuleLoadData accepts.

    sm is the compute capability x 10 that the text sees. A checked image reports every access: it
    finds races and bad addresses and counts traffic, and runs some twenty times slower.
    """
    mode = _CHECKED if checked else _FAST
    folders = [f"-I{folder}" for folder in (*include_dirs, _HERE / "include")]
    out_path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out_path.parent) as scratch:
        source = Path(scratch) / "kernels.cu"
        source.write_text(source_text)
        unit, image = Path(scratch) / "kernels.o", Path(scratch) / "kernels.so"
        options = (*_KERNEL_FLAGS, *mode, f"-DUA_EMULATOR_SM={sm}", *folders)
        _run(*options, "-x", "c++", "-c", source, "-o", unit)
        # Linked apart, without the sanitizer's flag: its library must not come in.
        _run("-shared", "-o", image, unit)
        os.replace(image, out_path)
    return out_path


def _compile_driver_part(source: Path, target: Path) -> None:
    _run(*_DRIVER_FLAGS, "-c", source, "-o", target)


def _digest(files: Sequence[Path]) -> str:
    state = hashlib.sha256(repr((host_compiler(), _DRIVER_FLAGS, os.uname().machine)).encode())
    for file in files:
        state.update(file.name.encode() + b"\0" + file.read_bytes())
    return state.hexdigest()[:16]


def _run(*arguments: object) -> None:
    command = [*host_compiler(), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=inherited({"LC_ALL": "C"})
    )
    if done.returncode:
        raise ToolFailed(
            f"{command[0]} failed with status {done.returncode}",
            at=" ".join(command),
            hint=done.stderr.strip()[:4000] or "run the command by hand",
        )
