"""Compile a probe and look at its machine code. Not here: how models are built
(unistack_aot/targets).
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from probe_suite.record import Seen
from unistack_aot.base.errors import MissingTool, ToolFailed

INCLUDE = Path(__file__).parent / "include"
BUILD_LIMIT_S = 300


class InstructionMissing(ToolFailed):
    """The compiler removed or replaced the instruction a probe wants to time, so its figure would
    be meaningless.
    """


def run_tool(command: Sequence[str], limit_s: float = BUILD_LIMIT_S) -> str:
    """Run a tool and return its standard output; ToolFailed carries its words, MissingTool its
    name.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False, errors="replace"
        )
    except FileNotFoundError as error:
        raise MissingTool(
            f"'{command[0]}' is not installed", hint="install it to run this probe"
        ) from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise ToolFailed(f"{Path(command[0]).name} failed: {words}", at=" ".join(command))
    return done.stdout


def build_cpu(
    source: Path,
    library: Path,
    arch: str,
    defines: Sequence[str] = (),
    features: Sequence[str] = (),
) -> ctypes.CDLL:
    """Compile one C++ probe (`compile_cpu`) and load it."""
    compile_cpu(source, library, arch, defines, features)
    return ctypes.CDLL(str(library))


def compile_cpu(
    source: Path,
    library: Path,
    arch: str,
    defines: Sequence[str] = (),
    features: Sequence[str] = (),
) -> None:
    """Compile one C++ probe into a shared library for `arch`, an x86-64 level or aarch64.

    `features` are compiler flags for instructions beyond that level.
    """
    flags = [
        "-O3",
        "-std=c++17",
        "-fPIC",
        "-shared",
        "-pthread",
        "-fno-tree-vectorize",
        f"-I{INCLUDE}",
    ]
    if arch.startswith("x86-64"):
        flags.append(f"-march={arch}")
    macros = [f"-D{define}" for define in defines]
    run_tool(["g++", *flags, *features, *macros, str(source), "-o", str(library)])


def see_cpu(library: Path, function: str, pattern: str, least: int) -> Seen:
    """Require `pattern` at least `least` times in the disassembly of `function` (a part of the
    mangled name).
    """
    text = run_tool(["objdump", "-d", "--no-show-raw-insn", str(library)])
    bodies = re.findall(r"^[0-9a-f]+ <([^>]+)>:\n(.*?)(?=\n\n|\Z)", text, flags=re.M | re.S)
    code = "\n".join(body for name, body in bodies if function in name)
    return _require(function, pattern, len(re.findall(pattern, code)), least)


def cuda_tool(name: str) -> str:
    """Return the path of a CUDA binary tool: beside nvcc, from the pip wheels, or on the search
    path.
    """
    root = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    installed = sorted(root.glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(installed[-1]) if installed else None)
    if found is None:
        raise MissingTool(f"'{name}' is not installed", hint=f"pip install nvidia-cuda-{name}")
    return found


def build_cubin(text: str, cubin: Path, sm: str, includes: Sequence[Path] = ()) -> Path:
    """Compile CUDA text for one generation ("sm_90") into a cubin beside its source."""
    source = cubin.with_suffix(".cu")
    source.write_text(text, encoding="utf-8")
    folders = [f"-I{folder}" for folder in (INCLUDE, *includes)]
    flags = ["-cubin", f"-arch={sm}", "-O3", "-std=c++17", "-diag-suppress=177"]
    run_tool([cuda_tool("nvcc"), *flags, *folders, str(source), "-o", str(cubin)])
    return cubin


def see_cuda(cubin: Path, kernel: str, pattern: str, least: int) -> Seen:
    """Require `pattern` at least `least` times in the SASS of `kernel`."""
    cuda_tool("nvdisasm")  # cuobjdump starts it, and would not say how to get it
    text = run_tool([cuda_tool("cuobjdump"), "-sass", str(cubin)])
    parts = re.split(r"^\s*Function : ", text, flags=re.M)[1:]
    code = "".join(part for part in parts if part.split("\n", 1)[0].strip() == kernel)
    return _require(kernel, pattern, len(re.findall(pattern, code)), least)


def _require(kernel: str, pattern: str, count: int, least: int) -> Seen:
    if count < least:
        raise InstructionMissing(
            f"'{kernel}' holds {count} of {least} '{pattern}': the compiler changed the probe",
            hint="look at the machine code; the probe must be rewritten for this compiler",
        )
    return Seen(kernel, pattern, count)
