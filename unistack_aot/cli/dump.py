"""Stages of a compilation as numbered text files, and files that take their place.

    00-model.txt  01-imported.aicf  02-rules.aicf  10-lowered.mcir
    11-scheduled-cpu-x86-64-v3.mcir  20-cpu-x86-64-v3-kernels_0.cpp  30-cpu-x86-64-v3.facts.txt
    20-cuda-sm_90-kernels.cu  21-cuda-sm_90-kernels.ptx  22-cuda-sm_90-k0.sass

`index.txt` lists them and says where a stage changed nothing. Constants that texts name by hash, and
what else a restart needs, lie beside them (restart.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.op import Input
from unistack_aot.aicf.text import arrays_of, print_graph
from unistack_aot.artifact.manifest import Tensor
from unistack_aot.base.errors import BadInput
from unistack_aot.base.options import Options
from unistack_aot.base.symbolic import text as dim_text
from unistack_aot.cli.face import columns, size
from unistack_aot.cli.listing import model_lines
from unistack_aot.cli.restart import (
    CONSTANTS,
    boundary_of,
    constants_for,
    read_constants,
    read_graph,
    read_program,
    write_constants,
    write_model,
    write_plan,
)
from unistack_aot.mcir.program import Program
from unistack_aot.mcir.stages.lowered import LOWERED
from unistack_aot.mcir.stages.scheduled import SCHEDULED
from unistack_aot.mcir.stages.stage import Stage
from unistack_aot.mcir.text import program_text
from unistack_aot.onnx_in import Imported
from unistack_aot.onnx_in.read import read_model
from unistack_aot.packing import About
from unistack_aot.targets.registry import split_name
from unistack_aot.targets.target import Scheduled, Source

T = TypeVar("T")


class Dump:
    """A watch over the pipeline: writes stages to a folder, takes them from another.

    `origins` are those of the graph that compilation begins with, if it is not imported.
    """

    def __init__(
        self,
        model: Path | None,
        folder: Path | None,
        override: Path | None,
        options: Options,
        origins: Origins | None = None,
        intermediate: bool = False,
    ) -> None:
        self._model = model
        self._into = folder
        self._intermediate = intermediate
        self._sources: dict[str, Source] = {}
        self._options = options
        self._origins = origins or Origins()
        self._last: dict[str, str] = {}
        self._lines: list[str] = []
        self._constants: dict[str, Any] = {}
        self._known: About | None = None
        self._ranges: Mapping[str, tuple[int, int | None]] = {}
        self._replacements = _replacements(override)
        self._used: set[str] = set()

    def __call__(self, stage: str, value: T, /) -> T:
        """Write one stage, or replace it."""
        kind, _, target = stage.partition(" ")
        place = target.replace(":", "-")
        changed: Any = value
        match value:
            case Imported():
                self._origins, self._ranges = value.origins, value.ranges
                self._listed()
                graph = self._graph("01-imported.aicf", value.graph)
                changed = value if graph is value.graph else replace(value, graph=graph)
            case Graph():
                changed = self._graph("02-rules.aicf", value)
            case About():
                self._known, self._ranges = value, value.ranges
            case (Program() as program, constants):
                changed = self._program("10-lowered.mcir", program, constants, LOWERED)
                self._constants |= dict(changed[1])
            case Scheduled(program=program, constants=constants):
                name = f"11-scheduled-{place}.mcir"
                program, constants = self._program(name, program, constants, SCHEDULED)
                changed = replace(value, program=program, constants=constants)
                if self._into is not None:
                    write_plan(self._into, place, target, changed)
            case Source():
                changed = self._source(place, value)
            case bytes():
                self._machine_code(place, target, value)
            case _:
                raise AssertionError(f"stage {kind}")
        return cast(T, changed)

    def finish(self) -> None:
        """Write the index and what a restart needs; BadInput for a replacement that no stage took."""
        unused = sorted(self._replacements.keys() - self._used)
        if unused:
            raise BadInput(
                f"no stage is called {unused[0]}",
                hint="stages are named as --dump names them; 00, and 21 to 30, cannot be replaced",
            )
        if self._into is None:
            return
        (self._into / "index.txt").write_text("\n".join(self._lines) + "\n")
        write_constants(self._into / CONSTANTS, self._constants)
        if self._known is not None:
            write_model(self._into, self._known, self._options)

    def _listed(self) -> None:
        if self._into is not None and self._model is not None:
            self._write("00-model.txt", "\n".join(model_lines(read_model(self._model).proto)))

    def _graph(self, name: str, graph: Graph) -> Graph:
        if name in self._replacements:
            file = self._replacements[name]
            self._used.add(name)
            constants = {**arrays_of(graph), **read_constants(file.parent)}
            graph, origins = read_graph(file, constants, _signature(graph))
            for node, labels in origins.names.items():
                self._origins.add(node, labels)
        if self._into is not None:
            self._constants |= arrays_of(graph)
            self._write(name, print_graph(graph, self._origins), "aicf")
        return graph

    def _program(
        self, name: str, program: Program, constants: Mapping[str, Any], stage: Stage
    ) -> tuple[Program, Mapping[str, Any]]:
        if name in self._replacements:
            file = self._replacements[name]
            self._used.add(name)
            program = read_program(file, stage, self._ranges, boundary_of(program))
            beside = {**constants, **read_constants(file.parent)}
            constants = constants_for(file, program, beside)
        if self._into is not None:
            self._write(name, program_text(program))
        return program, constants

    def _source(self, place: str, source: Source) -> Source:
        files: list[tuple[str, str]] = []
        for name, text in source.files:
            ending = "" if "." in name else ".cpp"
            file = f"20-{place}-{name}{ending}"
            if file in self._replacements:
                text = self._replacements[file].read_text()
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


def _signature(graph: Graph) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    inputs = [(n.op.label, n.tensor) for n in graph.inputs if isinstance(n.op, Input)]
    outputs = [(name, node.tensor) for name, node in graph.outputs]
    made = [
        tuple(
            Tensor(name, kind.dtype.name, tuple(map(dim_text, kind.shape))) for name, kind in side
        )
        for side in (inputs, outputs)
    ]
    return made[0], made[1]


def _replacements(override: Path | None) -> dict[str, Path]:
    """Stage files of a folder by name."""
    if override is None:
        return {}
    if not override.is_dir():
        raise BadInput(f"the override folder {override} does not exist", hint="create it first")
    return {
        path.name: path
        for path in sorted(override.iterdir())
        if path.is_file()
        and path.suffix not in (".json", ".safetensors")
        and path.name != "index.txt"
    }
