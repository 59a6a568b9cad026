"""Stages of a compilation as numbered text files, and files that take their place.

    00-model.txt  01-imported.aicf  02-rules.aicf  10-lowered.mcir
    11-scheduled-cpu-x86-64-v3.mcir  20-cpu-x86-64-v3-kernels_0.cpp  30-cpu-x86-64-v3.facts.txt
    20-cuda-sm_90-kernels.cu  21-cuda-sm_90-kernels.ptx  22-cuda-sm_90-k0.sass

`index.txt` lists them and says where a stage changed nothing. Constants that texts name by hash
are in `constants.safetensors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from safetensors.numpy import load_file, save_file

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.parse import parse_graph
from unistack_aot.aicf.text import constants_of, print_graph
from unistack_aot.base.errors import BadInput
from unistack_aot.cli.face import columns, size
from unistack_aot.cli.listing import model_lines
from unistack_aot.mcir.program import Program
from unistack_aot.mcir.program_parse import parse_program
from unistack_aot.mcir.text import program_text
from unistack_aot.onnx_in import Imported
from unistack_aot.onnx_in.read import read_model
from unistack_aot.targets.registry import split_name
from unistack_aot.targets.target import Scheduled, Source

T = TypeVar("T")
CONSTANTS = "constants.safetensors"
NUMBERS = {"imported": "01", "rules": "02", "lowered": "10", "scheduled": "11", "source": "20"}
RESTARTS = ("01-imported.aicf", "02-rules.aicf", "10-lowered.mcir")


class Dump:
    """A watch over the pipeline: writes stages to a folder, takes them from another."""

    def __init__(
        self,
        model: Path,
        folder: Path | None,
        override: Path | None,
        start: Path | None,
        intermediate: bool = False,
    ) -> None:
        self.folder = override
        self._model = model
        self._into = folder
        self._intermediate = intermediate
        self._sources: dict[str, Source] = {}
        self._last: dict[str, str] = {}
        self._lines: list[str] = []
        self._constants: dict[str, Any] = {}
        self._imported: Imported | None = None
        self._replacements = _replacements(override, start)
        if start is not None:
            self.folder = start.parent
        self._used: set[str] = set()

    def __call__(self, stage: str, value: T, /) -> T:
        """Write one stage, or replace it."""
        kind, _, target = stage.partition(" ")
        place = target.replace(":", "-")
        changed: Any = value
        match value:
            case Imported():
                self._imported = value
                graph = self._graph("01-imported.aicf", value.graph, value)
                changed = value if graph is value.graph else replace(value, graph=graph)
            case Graph():
                assert self._imported is not None
                changed = self._graph("02-rules.aicf", value, self._imported)
            case (Program() as program, constants):
                changed = (self._program("10-lowered.mcir", program), constants)
            case Scheduled(program=program):
                name = f"11-scheduled-{place}.mcir"
                changed = replace(value, program=self._program(name, program))
            case Source():
                changed = self._source(place, value)
            case bytes():
                self._machine_code(place, target, value)
            case _:
                raise AssertionError(f"stage {kind}")
        return cast(T, changed)

    def finish(self) -> None:
        """Write the index and the constants; BadInput for a replacement that no stage took."""
        unused = sorted(self._replacements.keys() - self._used)
        if unused:
            raise BadInput(
                f"no stage is called {unused[0]}",
                hint="stages are named as --dump names them; 00, and 21 to 30, cannot be replaced",
            )
        if self._into is None:
            return
        (self._into / "index.txt").write_text("\n".join(self._lines) + "\n")
        if self._constants:
            save_file(self._constants, str(self._into / CONSTANTS))

    def _graph(self, name: str, graph: Graph, imported: Imported) -> Graph:
        if name in self._replacements:
            text, constants = self._replacements[name]
            self._used.add(name)
            graph = parse_graph(text, {**constants_of(graph), **constants})
        if self._into is not None:
            if name.startswith("01"):
                lines = model_lines(read_model(self._model).proto)
                self._write("00-model.txt", "\n".join(lines))
            self._constants |= {
                key: np.ascontiguousarray(array)
                for key, array in constants_of(graph).items()
                if array.dtype.name != "bfloat16"
            }
            self._write(name, print_graph(graph, imported.origins), "aicf")
        return graph

    def _program(self, name: str, program: Program) -> Program:
        if name in self._replacements:
            program = parse_program(self._replacements[name][0])
            self._used.add(name)
        if self._into is not None:
            self._write(name, program_text(program))
        return program

    def _source(self, place: str, source: Source) -> Source:
        files: list[tuple[str, str]] = []
        for name, text in source.files:
            ending = "" if "." in name else ".cpp"
            file = f"20-{place}-{name}{ending}"
            if file in self._replacements:
                text = self._replacements[file][0]
                self._used.add(file)
            self._write(file, text)
            files.append((name, text))
        self._sources[place] = replace(source, files=tuple(files))
        return self._sources[place]

    def _machine_code(self, place: str, target: str, code: bytes) -> None:
        if self._into is None:
            return
        family, level = split_name(target)
        source = self._sources[place]
        found = family.listings(source, code, level or "", self._intermediate)
        for name, text in found.files:
            self._write(f"{21 if name.endswith('.ptx') else 22}-{place}-{name}", text)
        if found.missing:
            self._lines.append(f"{f'22-{place}-*.sass':<44} not written: {found.missing}")
        lines = columns(found.table, "l" + "r" * 40)
        total = f"{len(code)} bytes ({size(len(code))})"
        self._write(f"30-{place}.facts.txt", "\n".join((total, *lines)))

    def _write(self, name: str, text: str, chain: str = "") -> None:
        if self._into is None:
            return
        self._into.mkdir(parents=True, exist_ok=True)
        (self._into / name).write_text(text.rstrip("\n") + "\n")
        same = bool(chain) and self._last.get(chain) == text
        self._lines.append(
            f"{name:<44} {'unchanged' if same else f'{len(text.splitlines())} lines'}"
        )
        if chain:
            self._last[chain] = text


Replacement = tuple[str, Mapping[str, Any]]


def _replacements(override: Path | None, start: Path | None) -> dict[str, Replacement]:
    """Texts by stage file name, with the constants that lie beside them."""
    if override is not None and start is not None:
        raise BadInput("--from and --override together", hint="put the stage into the folder")
    if start is not None:
        if start.name not in RESTARTS:
            raise BadInput(
                f"compilation cannot go on from {start.name}",
                hint=f"give a dumped {', '.join(RESTARTS[:-1])} or {RESTARTS[-1]}",
            )
        if not start.is_file():
            raise BadInput(f"there is no file {start}", hint="write stages with --dump DIR")
        return {start.name: (start.read_text(), _constants(start.parent))}
    if override is None:
        return {}
    if not override.is_dir():
        raise BadInput(f"the override folder {override} does not exist", hint="create it first")
    constants = _constants(override)
    return {
        path.name: (path.read_text(), constants)
        for path in sorted(override.iterdir())
        if path.is_file() and path.name not in (CONSTANTS, "index.txt")
    }


def _constants(folder: Path) -> Mapping[str, Any]:
    file = folder / CONSTANTS
    return load_file(str(file)) if file.is_file() else {}
