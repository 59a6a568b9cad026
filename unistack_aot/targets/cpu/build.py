"""The host compiler: which one, its flags per instruction set, objects and the shared library."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from unistack_aot.base.environment import environment
from unistack_aot.base.errors import MissingTool
from unistack_aot.targets.toolchain import Job, Tool, probe_tool

INCLUDE = Path(__file__).parent / "include"

# -ffast-math is not here: NaN, infinity and the order of declared folds keep their meaning.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fopenmp-simd",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-w",
)


@dataclass(frozen=True, slots=True)
class Isa:
    """An instruction-set level: compiler flags, and the CPU features a machine must have to run it."""

    name: str
    march: tuple[str, ...]
    needs: tuple[str, ...]
    vector_bytes: int


LEVELS = {
    "x86-64-v2": Isa("x86-64-v2", ("-march=x86-64-v2",), (), 16),
    "x86-64-v3": Isa("x86-64-v3", ("-march=x86-64-v3",), (), 32),
    "x86-64-v4": Isa("x86-64-v4", ("-march=x86-64-v4",), (), 64),
    "aarch64": Isa("aarch64", ("-march=armv8.2-a+fp16",), (), 16),
}


SHIPPED = {"x86_64": ("x86-64-v4", "x86-64-v3"), "aarch64": ("aarch64",)}
"""The levels of a plain `cpu`, best first, by the architecture of the building machine."""


def shipped() -> tuple[str, ...]:
    """The levels of a plain `cpu` that the compiler here knows; the widest of all machines is always among them."""
    *better, least = SHIPPED.get(platform.machine(), SHIPPED["x86_64"])
    return (*(name for name in better if accepts(compiler(LEVELS[name]), LEVELS[name])), least)


@cache
def accepts(tool: Tool, isa: Isa) -> bool:
    """Whether a compiler knows the flags of a level (g++ learnt x86-64-v4 in version 11)."""
    command = [*tool.command, *isa.march, "-fsyntax-only", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def compiler(isa: Isa) -> Tool:
    """The C++ compiler for this level: UA_CXX, g++, clang++, or pip's ziglang; MissingTool says how to get one."""
    named = environment().cxx
    candidates: list[tuple[str, ...]] = [tuple(named.split())] if named else []
    if isa.name == "aarch64":
        candidates.append(("aarch64-linux-gnu-g++",))
    elif not named:
        candidates += [("g++",), ("clang++",)]
    if find_spec("ziglang") is not None:
        target = "aarch64-linux-gnu" if isa.name == "aarch64" else "x86_64-linux-gnu"
        candidates.append((sys.executable, "-m", "ziglang", "c++", "-target", target))
    for command in candidates:
        found = probe_tool(command)
        if found is not None:
            return found
    raise MissingTool(
        f"no C++ compiler for cpu:{isa.name}",
        at=", ".join(" ".join(c) for c in candidates) or "PATH",
        hint="install g++ or clang, or: pip install 'unistack-aot[cpu]'",
    )


def object_job(isa: Isa, name: str, text: str) -> Job:
    """Compile one translation unit."""
    arguments = (*FLAGS, *isa.march, "-c", f"{name}.cpp", "-o", f"{name}.o")
    sources = ((f"{name}.cpp", text.encode()),)
    return Job(compiler(isa), arguments, sources, f"{name}.o", includes=(INCLUDE,))


def link_job(isa: Isa, objects: tuple[tuple[str, bytes], ...]) -> Job:
    """Link objects into the variant's shared library."""
    names = tuple(name for name, _ in objects)
    arguments = (
        "-shared",
        "-s",
        "-Wl,--build-id=none",
        *names,
        "-o",
        "code.so",
        "-lm",
        "-lpthread",
    )
    return Job(compiler(isa), arguments, objects, "code.so")
