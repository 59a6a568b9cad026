"""nvcc and the emulator's compiler: where they are, their flags, what they say about a kernel's resources."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from unistack_aot.base.environment import environment
from unistack_aot.base.errors import MissingTool
from unistack_aot.targets.toolchain import Job, Outcome, Tool, probe_tool, run_jobs

INCLUDE = Path(__file__).parent / "include"
PLACE = "/unistack_aot"  # the folder that line information names
GENERATIONS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
FLAGS = ("-std=c++17", "-O3", "-lineinfo", "-Xptxas", "-v", "-diag-suppress", "177,550,1046")


def nvcc() -> Tool:
    """The CUDA compiler: UA_NVCC, the one on PATH, or pip's; MissingTool says how to get one."""
    named = environment().nvcc
    candidates = [named] if named else ["nvcc", *_from_pip()]
    for command in candidates:
        found = probe_tool((command,))
        if found is not None:
            return found
    raise MissingTool(
        "no CUDA compiler (nvcc) was found",
        at=", ".join(candidates),
        hint="pip install 'unistack-aot[cuda]', or set UA_NVCC to the path of nvcc",
    )


def _from_pip() -> list[str]:
    spec = find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    return [str(p) for f in folders for p in sorted(Path(f).glob("cu*/bin/nvcc"), reverse=True)]


def cubin_job(level: str, text: str) -> Job:
    """Compile one translation unit for one generation.

    Not as an object for nvlink: relocatable code with line information has random section names, and equal programs
    would differ.
    """
    arguments = (*FLAGS, f"-arch={level}", "-cubin", "kernels.cu", "-o", "kernels.cubin")
    return Job(nvcc(), arguments, (("kernels.cu", standalone(text).encode()),), "kernels.cubin")


def build_cubins(
    level: str, texts: Sequence[str], done: Callable[[int], None] = lambda _: None
) -> tuple[Outcome, ...]:
    """Translation units as machine code for one generation, and what ptxas said of their kernels."""
    built = run_jobs([cubin_job(level, text) for text in texts], done)
    return tuple(Outcome(settled(each.data), each.log) for each in built)


def ptx_job(level: str, text: str) -> Job:
    """The same translation unit as PTX."""
    arguments = (*FLAGS, f"-arch={level}", "-ptx", "kernels.cu", "-o", "kernels.ptx")
    return Job(nvcc(), arguments, (("kernels.cu", standalone(text).encode()),), "kernels.ptx")


def standalone(text: str) -> str:
    """The text with its headers written out, under names that are the same on every machine.

    Line information would otherwise hold the folders of this machine, and equal programs would differ.
    """
    lines = [f'#line 1 "{PLACE}/kernels.cu"']
    done: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        lines += _written_out(line, number, "kernels.cu", done)
    return "\n".join(lines) + "\n"


def _written_out(line: str, number: int, place: str, done: set[str]) -> list[str]:
    """A line, or the lines of the header that it includes for the first time."""
    found = re.match(r'#include [<"](?:ua/)?(\w+\.cuh)[>"]', line)
    if found is None:
        return ["" if line.startswith("#pragma once") else line]
    if found[1] in done:
        return [""]
    done.add(found[1])
    inside = f"ua/{found[1]}"
    lines = [f'#line 1 "{PLACE}/{inside}"']
    for at, each in enumerate((INCLUDE / inside).read_text().splitlines(), 1):
        lines += _written_out(each, at, inside, done)
    return [*lines, f'#line {number + 1} "{PLACE}/{place}"']


def settled(cubin: bytes) -> bytes:
    """The machine code without the number that nvcc gives each of its runs; it names internal functions only."""
    return re.sub(rb"_INTERNAL_[0-9a-f]{8}_", b"_INTERNAL_00000000_", cubin)


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas gave one kernel: registers per thread, bytes spilled, static shared bytes."""

    registers: int
    spilled: int
    shared: int


def resources(log: str) -> dict[str, Resources]:
    """Resources by kernel name from what `ptxas -v` prints."""
    found: dict[str, Resources] = {}
    name, spilled = "", 0
    for line in log.splitlines():
        if named := re.search(r"Compiling entry function '(\w+)'", line):
            name, spilled = named[1], 0
        elif stores := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(stores[1]) + int(stores[2])
        elif used := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[name] = Resources(int(used[1]), spilled, int(shared[1]) if shared else 0)
    return found


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for one compiler run."""
    return tempfile.TemporaryDirectory(prefix="unistack_aot_")
