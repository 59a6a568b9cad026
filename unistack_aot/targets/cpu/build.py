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
    """An instruction-set level: its architecture, compiler flags, and the CPU features a machine must have to run it.

    `zig` is how pip's ziglang spells `march`; `features` are flags for instructions beyond it.
    """

    name: str
    architecture: str
    march: str
    zig: str
    needs: tuple[str, ...]
    vector_bytes: int
    features: tuple[str, ...] = ()


_BF16, _AMX = ("-mavx512bf16", "-mavx512vnni"), ("-mamx-tile", "-mamx-bf16")

LEVELS = {
    "x86-64-v2": Isa("x86-64-v2", "x86_64", "x86-64-v2", "x86_64_v2", (), 16),
    "x86-64-v3": Isa("x86-64-v3", "x86_64", "x86-64-v3", "x86_64_v3", (), 32),
    "x86-64-v4": Isa("x86-64-v4", "x86_64", "x86-64-v4", "x86_64_v4", (), 64),
    "x86-64-v4-bf16": Isa(
        "x86-64-v4-bf16",
        "x86_64",
        "x86-64-v4",
        "x86_64_v4",
        ("avx512_bf16", "avx512_vnni"),
        64,
        _BF16,
    ),
    "x86-64-v4-amx": Isa(
        "x86-64-v4-amx",
        "x86_64",
        "x86-64-v4",
        "x86_64_v4",
        ("avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16"),
        64,
        (*_BF16, *_AMX),
    ),
    "aarch64": Isa("aarch64", "aarch64", "armv8.2-a+fp16", "generic+v8_2a+fullfp16", (), 16),
}


SHIPPED = {"x86_64": ("x86-64-v4", "x86-64-v3"), "aarch64": ("aarch64",)}
"""The levels of a plain `cpu`, best first, by the architecture of the building machine."""

SHIPPED_BF16 = {"x86_64": ("x86-64-v4-amx", "x86-64-v4-bf16", *SHIPPED["x86_64"])}
"""Those where products may be computed in bf16."""


def shipped(precision: str = "f32") -> tuple[str, ...]:
    """The levels of a plain `cpu` that a compiler here knows; the widest of all machines is always among them."""
    known = {**SHIPPED, **(SHIPPED_BF16 if precision == "bf16" else {})}
    *better, least = known.get(platform.machine(), known["x86_64"])
    return (*(name for name in better if _found(LEVELS[name]) is not None), least)


def compiler(isa: Isa) -> Tool:
    """The C++ compiler for this level: UA_CXX, g++, clang++, or pip's ziglang; MissingTool says how to get one."""
    found = _found(isa)
    if found is not None:
        return found
    cross = "" if isa.architecture == platform.machine() else f" that builds for {isa.architecture}"
    raise MissingTool(
        f"no C++ compiler for cpu:{isa.name}",
        at=", ".join(" ".join(c) for c in _candidates(isa)) or "PATH",
        hint=f"install g++ or clang{cross}, or: pip install 'unistack-aot[cpu]'",
    )


def level_flags(tool: Tool, isa: Isa) -> tuple[str, ...]:
    """The flags that ask a compiler for a level."""
    zig = any(Path(word).name in ("zig", "ziglang") for word in tool.command)
    return (f"-march={isa.zig if zig else isa.march}", *isa.features)


def _found(isa: Isa) -> Tool | None:
    """The first compiler that is here and knows the level (g++ learnt x86-64-v4 in version 11)."""
    for command in _candidates(isa):
        tool = probe_tool(command)
        if tool is not None and _accepts(tool, isa):
            return tool
    return None


def _candidates(isa: Isa) -> tuple[tuple[str, ...], ...]:
    """Commands that may build for a level, preferred first; for this machine's architecture UA_CXX stands alone."""
    named, triple = environment().cxx, f"{isa.architecture}-linux-gnu"
    foreign = isa.architecture != platform.machine()
    own = (tuple(named.split()),) if named else (("g++",), ("clang++",))
    if named and not foreign:
        return own
    cross = ((f"{triple}-g++",),) if foreign else ()
    commands = (*cross, *own) if not named else (*own, *cross)
    if find_spec("ziglang") is None:
        return commands
    return (*commands, (sys.executable, "-m", "ziglang", "c++", "-target", triple))


@cache
def _accepts(tool: Tool, isa: Isa) -> bool:
    command = [*tool.command, *level_flags(tool, isa), "-E", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def object_job(isa: Isa, name: str, text: str) -> Job:
    """Compile one translation unit."""
    tool = compiler(isa)
    arguments = (*FLAGS, *level_flags(tool, isa), "-c", f"{name}.cpp", "-o", f"{name}.o")
    sources = ((f"{name}.cpp", text.encode()),)
    return Job(tool, arguments, sources, f"{name}.o", includes=(INCLUDE,))


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
