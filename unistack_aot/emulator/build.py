"""Builds the emulator's driver library and kernel images with the host's C++ compiler.

Not here: loading the library into this process (load.py).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
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
_MOST_KERNELS = 6
"""Kernels of one compiler run: parts of a translation unit are built side by side and kept by content."""
_PROCESSOR_FACTS = re.compile(r"(?m)^(?:model name|flags|Features|CPU part)\b.*$")


def include_dirs() -> tuple[Path, ...]:
    """The folder with the emulator's own headers, which every kernel build needs."""
    return (_HERE / "include",)


@cache
def host_compiler() -> tuple[str, ...]:
    """The command of a C++17 compiler: UA_CXX, g++, clang++ or the pip package ziglang."""
    given = environment().cxx
    if given is not None:
        return tuple(given.split())
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
    content = [file.name.encode() + b"\0" + file.read_bytes() for file in (*sources, *headers)]
    folder = cache_dir / "emulator" / _digest(_DRIVER_FLAGS, content)[:16]
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
    finds races and bad addresses and counts traffic, and runs some twenty times slower. What was
    built before is taken from the cache, kernel by kernel; the image holds no path of this machine.
    """
    options = (*_KERNEL_FLAGS, *(_CHECKED if checked else _FAST), f"-DUA_EMULATOR_SM={sm}")
    folders = (*include_dirs, _HERE / "include")
    parts = parts_of(source_text)
    try:
        objects = _objects(parts, options, folders)
    except ToolFailed:
        if len(parts) == 1:
            raise
        # A kernel may use what an earlier part defines; and places in messages are then the text's own.
        objects = _objects([source_text], options, folders)
    out_path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out_path.parent) as scratch:
        image = Path(scratch) / "kernels.so"
        # Linked apart, without the sanitizer's flag: its library must not come in.
        _run("-shared", "-o", image, *objects)
        os.replace(image, out_path)
    return out_path


def parts_of(source_text: str) -> list[str]:
    """A translation unit in parts of a few kernels, each after all that comes before the first one."""
    ends = [found.end() for found in re.finditer(r"(?m)^UA_KERNEL\(\w+\)\n", source_text)]
    first = re.search(r'(?m)^(?://.*\n)*extern "C" __global__', source_text)
    if first is None or len(ends) <= _MOST_KERNELS:
        return [source_text]
    cuts = [first.start(), *ends[_MOST_KERNELS - 1 : -1 : _MOST_KERNELS], len(source_text)]
    head = source_text[: first.start()]
    return [
        f"{head}#line {source_text.count(chr(10), 0, start) + 1}\n{source_text[start:end]}"
        for start, end in pairwise(cuts)
    ]


def _objects(parts: Sequence[str], options: Sequence[str], folders: Sequence[Path]) -> list[Path]:
    headers = [_content(folder) for folder in folders]
    store = environment().cache / "emulator" / "objects"

    def compiled(part: str) -> Path:
        key = _digest(options, [*headers, part.encode()])
        kept = store / key[:2] / f"{key}.o"
        if not kept.exists():
            _compile_part(part, kept, options, folders)
        return kept

    with ThreadPoolExecutor(environment().jobs) as pool:
        return list(pool.map(compiled, parts))


@cache
def _content(folder: Path) -> bytes:
    """Names and contents of all files under a folder of headers."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = [(path.relative_to(folder).as_posix().encode(), path.read_bytes()) for path in files]
    return b"\0".join(piece for pair in named for piece in pair)


def _compile_part(text: str, kept: Path, options: Sequence[str], folders: Sequence[Path]) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        (Path(scratch) / "kernels.cu").write_text(text)
        # Places in the source get into the image: they must be the same on every machine.
        places = [f"-ffile-prefix-map={folder}=include" for folder in (*folders, scratch)]
        seen = [f"-I{folder}" for folder in folders]
        flags = (*options, *places, *seen, "-x", "c++", "-c")
        _run(*flags, "kernels.cu", "-o", "kernels.o", folder=scratch)
        os.replace(Path(scratch) / "kernels.o", kept)


def _compile_driver_part(source: Path, target: Path) -> None:
    _run(*_DRIVER_FLAGS, "-c", source, "-o", target)


@cache
def _builder() -> bytes:
    """What a result depends on besides flags and text: the compiler, and the processor that it builds for."""
    ran = subprocess.run(
        [*host_compiler(), "--version"], capture_output=True, text=True, check=False
    )
    about = Path("/proc/cpuinfo")
    facts = set(_PROCESSOR_FACTS.findall(about.read_text())) if about.exists() else set[str]()
    return repr((host_compiler(), ran.stdout, os.uname().machine, sorted(facts))).encode()


def _digest(flags: Sequence[str], content: Sequence[bytes]) -> str:
    state = hashlib.sha256(_builder() + repr(flags).encode())
    for each in content:
        state.update(len(each).to_bytes(8, "little") + each)
    return state.hexdigest()


def _run(*arguments: object, folder: str | None = None) -> None:
    command = [*host_compiler(), *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=inherited({"LC_ALL": "C"}),
    )
    if done.returncode:
        raise ToolFailed(
            f"{command[0]} failed with status {done.returncode}",
            at=" ".join(command),
            hint=done.stderr.strip()[:4000] or "run the command by hand",
        )
