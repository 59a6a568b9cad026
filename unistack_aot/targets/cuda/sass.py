"""Machine code read back: SASS beside the source lines it came from, registers, local memory, instructions by kind.

Not here: building it (build.py).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from unistack_aot.artifact.images import split
from unistack_aot.base.errors import MissingTool, ToolFailed
from unistack_aot.targets.cuda.build import INCLUDE, PLACE, nvcc, ptx_job
from unistack_aot.targets.cuda.parts import pieces
from unistack_aot.targets.target import Listings, Source
from unistack_aot.targets.toolchain import Tool, probe_tool, run_job

KINDS = {
    "FFMA": r"FFMA2?\b",
    "HMMA": r"(?:HMMA|HGMMA|UTC\w*MMA)\b",
    "LDG.128": r"LDG\b.*\.128\b",
    "LDG": r"LDG\b(?!.*\.128\b)",
    "LDGSTS": r"LDGSTS\b",
    "LDSM": r"LDSM\b",
    "LDS": r"LDS\b",
    "STG": r"STG\b",
    "MUFU": r"MUFU\b",
    "SHFL": r"SHFL\b",
    "BAR": r"BAR\b",
    "LDL, STL": r"(?:LDL|STL)\b",
}
"""Kinds of instructions that say how a kernel works, by what the operation's name begins with."""
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class KernelCode:
    """One kernel as the hardware gets it. `stack` is bytes of local memory: spills, and arrays without registers."""

    symbol: str
    sass: str
    registers: int
    stack: int
    instructions: int
    kinds: Mapping[str, int]


def read_back(code: bytes) -> tuple[KernelCode, ...]:
    """All kernels of a variant's cubins, and functions that they call, by name; MissingTool without a tool for it."""
    found = {each.symbol: each for cubin in split(code) for each in _of_cubin(cubin)}
    return tuple(found[symbol] for symbol in _ordered(found))


def _of_cubin(cubin: bytes) -> Iterator[KernelCode]:
    lister, disassembler = binary_tool("cuobjdump"), binary_tool("nvdisasm")
    if lister is None:
        raise MissingTool(
            "no tool that lists machine code (cuobjdump) was found",
            hint="pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm",
        )
    with tempfile.TemporaryDirectory(prefix="unistack_aot_") as folder:
        file = Path(folder) / "kernels.cubin"
        file.write_bytes(cubin)
        used = dict(_used(_said(lister, "-res-usage", str(file))))
        if disassembler is None:
            listed = dict(_parts(_said(lister, "-sass", str(file)), r"^\s*Function : (\S+)\n"))
        else:
            text = _said(disassembler, "-g", "-c", str(file))
            listed = dict(_parts(text, r"^//-+ \.text\.(\S+) +-+\n"))
    for symbol in used:
        yield _kernel(symbol, listed[symbol], *used[symbol])


def listings(source: Source, cubin: bytes, level: str, intermediate: bool) -> Listings:
    """SASS by kernel and a table of facts; with `intermediate` the PTX too."""
    files: list[tuple[str, str]] = []
    if intermediate:
        ((_, text),) = source.files
        files.append(("kernels.ptx", run_job(ptx_job(level, text)).data.decode()))
    try:
        codes = read_back(cubin)
    except MissingTool as error:
        return Listings(tuple(files), missing=f"{error.what}; {error.hint}")
    files += [(f"{code.symbol}.sass", _beside_source(code.sass, source)) for code in codes]
    return Listings(tuple(files), tuple(facts(source, codes)))


def _beside_source(sass: str, source: Source) -> str:
    """Marks of line information as `// file:line  text`; only the name remains of a file that is not ours."""
    ((name, text),) = source.files
    texts = {name: text.splitlines()}
    first = {piece.file: piece.line for piece in pieces(text)[1]}

    def mark(found: re.Match[str]) -> str:
        path, number = found[1], int(found[2])
        inside = path.removeprefix(f"{PLACE}/")
        if inside == path:
            return f"// {Path(path).name}:{number}"
        if inside in first:
            inside, number = name, first[inside] + number - 1
        if inside not in texts:
            texts[inside] = (INCLUDE / inside).read_text().splitlines()
        return f"// {inside}:{number}  {texts[inside][number - 1].strip()}"

    return re.sub(r'//## File "([^"]+)", line (\d+).*', mark, sass)


def facts(source: Source, codes: Iterable[KernelCode]) -> Iterator[tuple[str, ...]]:
    """A table: per kernel the registers and local bytes of a thread, shared bytes, and instructions by kind."""
    yield ("kernel", "registers", "stack", "shared", "instructions", *KINDS)
    shared = {kernel.symbol: kernel.shared_bytes for kernel in source.kernels}
    for code in (code for code in codes if code.symbol in shared):
        counts = (code.kinds.get(kind, 0) for kind in KINDS)
        numbers = (code.registers, code.stack, shared[code.symbol], code.instructions, *counts)
        yield (code.symbol, *map(str, numbers))


def binary_tool(name: str) -> Tool | None:
    """cuobjdump or nvdisasm: beside the compiler, on PATH, or pip's."""
    try:
        beside = [str(Path(nvcc().command[0]).with_name(name))] if "/" in nvcc().command[0] else []
    except MissingTool:
        beside = []
    spec = find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    piped = [str(p) for f in folders for p in sorted(Path(f).glob(f"*/bin/{name}"), reverse=True)]
    found = (probe_tool((command,)) for command in (*beside, name, *piped))
    return next((tool for tool in found if tool is not None), None)


def _kernel(symbol: str, text: str, registers: int, stack: int) -> KernelCode:
    names = [name for name in _INSTRUCTION.findall(text) if name != "NOP"]
    kinds = Counter(
        kind for name in names for kind, begins in KINDS.items() if re.match(begins, name)
    )
    code = text.split("\n//------", 1)[0]
    return KernelCode(symbol, code.strip("\n"), registers, stack, len(names), kinds)


def _used(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    for found in re.finditer(r"Function (\S+):\n\s*REG:(\d+) STACK:(\d+)", text):
        yield found[1], (int(found[2]), int(found[3]))


def _parts(text: str, heading: str) -> Iterator[tuple[str, str]]:
    pieces = re.split(heading, text, flags=re.MULTILINE)
    yield from zip(pieces[1::2], pieces[2::2], strict=True)


def _ordered(symbols: Mapping[str, object]) -> list[str]:
    """k2 before k10."""
    return sorted(
        symbols, key=lambda s: [int(w) if w.isdigit() else w for w in re.split(r"(\d+)", s)]
    )


def _said(tool: Tool, *arguments: str) -> str:
    command = [*tool.command, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise ToolFailed(f"{tool.command[0]} failed: {ran.stderr.strip()[:300]}")
    return ran.stdout
