"""Stage files as compilation takes them up again: text, constants, and what else is known.

A dump holds `model.json` (what all stages know of the model), `constants.safetensors`, and for each
target `constants-TARGET.safetensors` (packed weights) with `decisions-TARGET.json`. Not here: writing
stages (dump.py).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.op import Input
from unistack_aot.aicf.parse import parse_traced
from unistack_aot.aicf.text import SHORT
from unistack_aot.artifact.manifest import Demand, Tensor
from unistack_aot.artifact.tensors import TensorFile, read_tensors
from unistack_aot.base.errors import BadInput, IRError
from unistack_aot.base.options import DimRange, Options
from unistack_aot.base.symbolic import parse
from unistack_aot.base.symbolic import text as dim_text
from unistack_aot.mcir.program import Kind, Program
from unistack_aot.mcir.program_parse import parse_program
from unistack_aot.mcir.stages.lowered import LOWERED as LOWERED_STAGE
from unistack_aot.mcir.stages.scheduled import SCHEDULED as SCHEDULED_STAGE
from unistack_aot.mcir.stages.stage import Stage as ProgramStage
from unistack_aot.mcir.verify_program import verify_program
from unistack_aot.onnx_in import Imported
from unistack_aot.onnx_in.demands import Demand as ImportDemand
from unistack_aot.onnx_in.importer import Report as ImportReport
from unistack_aot.packing import About
from unistack_aot.schedule.decision import Decision
from unistack_aot.stages import Lowered, Planned, Ruled, Stage
from unistack_aot.targets.target import Scheduled

IMPORTED, RULED, LOWERED = "01-imported.aicf", "02-rules.aicf", "10-lowered.mcir"
MODEL = "model.json"
CONSTANTS = "constants.safetensors"
Arrays = dict[str, Any]


def stage_of(file: Path) -> tuple[Stage, Options]:
    """The stage that a dumped file holds, perhaps edited, and the options it was dumped under.

    BadInput names the line that cannot be read, or the file that is missing beside it.
    """
    planned = file.name.startswith("11-scheduled-") and file.suffix == ".mcir"
    if file.name not in (IMPORTED, RULED, LOWERED) and not planned:
        raise BadInput(
            f"compilation cannot go on from {file.name}",
            hint=f"give a dumped {IMPORTED}, {RULED}, {LOWERED} or 11-scheduled-TARGET.mcir",
        )
    if not file.is_file():
        raise BadInput(f"there is no file {file}", hint="write stages with --dump DIR")
    document = _document(file.parent / MODEL)
    known, options = about_from(document), _options(document)
    if planned:
        place = file.stem.removeprefix("11-scheduled-")
        return _planned(file, place, known), options
    constants = read_constants(file.parent)
    if file.name == LOWERED:
        program = read_program(file, LOWERED_STAGE, known.ranges, boundary(known))
        return Lowered(known, program, constants_for(file, program, constants)), options
    graph, origins = read_graph(file, constants, (known.inputs, known.outputs))
    if file.name == RULED:
        return Ruled(known, graph, origins), options
    report = ImportReport(
        known.onnx_nodes,
        len(known.unused),
        0,
        {},
        known.remarks,
        tuple(ImportDemand(parse(d.value), d.sentence) for d in known.demands),
        operators=known.operators,
        unused=known.unused,
        gone=known.gone,
    )
    ranges = dict(known.ranges)
    return Imported(graph, origins, {"": known.opset}, known.name, ranges, report), options


def _planned(file: Path, place: str, known: About) -> Planned:
    program = read_program(file, SCHEDULED_STAGE, known.ranges, boundary(known))
    constants = constants_for(file, program, read_constants(file.parent, place))
    document = _document(file.parent / f"decisions-{place}.json")
    decisions = tuple(
        replace(Decision(**d), tried=tuple(d["tried"]), into=tuple(d["into"]))
        for d in document["decisions"]
    )
    return Planned(known, document["target"], Scheduled(program, constants, decisions))


Signature = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
Boundary = list[tuple[str, str, tuple[str, ...]]]


def read_graph(
    file: Path, constants: Mapping[str, Any], signature: Signature
) -> tuple[Graph, Origins]:
    """The graph in a file, and its origins; BadInput with file and line for one that is wrong."""
    short = {key[:SHORT]: array for key, array in constants.items()}
    text = file.read_text()
    with _located(file, text):
        graph, origins = parse_traced(text, short)
    inputs = [(n.op.label, str(n.type)) for n in graph.inputs if isinstance(n.op, Input)]
    found = inputs, [(name, str(node.type)) for name, node in graph.outputs]
    wanted = tuple([(t.name, _type(t)) for t in side] for side in signature)
    for kind, mine, theirs in zip(("inputs", "outputs"), found, wanted, strict=True):
        if mine != theirs:
            listed = ", ".join(f"{name}: {type_}" for name, type_ in theirs)
            raise BadInput(
                f"the {kind} are not the model's", at=file, hint=f"they must stay {listed}"
            )
    return graph, origins


def read_program(
    file: Path, stage: ProgramStage, ranges: Mapping[str, tuple[int, int | None]], wanted: Boundary
) -> Program:
    """The program in a file; BadInput with file and line for one that is wrong."""
    text = file.read_text()
    with _located(file, text):
        program = parse_program(text)
    if boundary_of(program) != wanted:
        listed = ", ".join(f"{kind} {dtype}[{', '.join(shape)}]" for kind, dtype, shape in wanted)
        raise BadInput(
            "the inputs and outputs are not the model's", at=file, hint=f"they must stay {listed}"
        )
    with _located(file, text):
        verify_program(program, stage, dict(ranges))
    return program


def boundary(known: About) -> Boundary:
    """Inputs and outputs of a program of this model: kind, type, shape."""
    return [
        (kind, tensor.dtype, tensor.shape)
        for kind, side in (("input", known.inputs), ("output", known.outputs))
        for tensor in side
    ]


def boundary_of(program: Program) -> Boundary:
    """Inputs and outputs of a program: kind, type, shape."""
    return [
        (kind.value, b.dtype.name, tuple(map(dim_text, b.shape)))
        for kind in (Kind.INPUT, Kind.OUTPUT)
        for b in program.buffers
        if b.kind is kind
    ]


def constants_for(file: Path, program: Program, constants: Mapping[str, Any]) -> Arrays:
    """The constants that a program names; BadInput for one that is not beside it."""
    named = {b.constant: b for b in program.buffers if b.constant}
    for digest, buffer in named.items():
        held = constants.get(digest)
        if held is None:
            raise BadInput(
                f"the content of constant {buffer.name} is not beside the stage",
                at=file,
                hint="keep the .safetensors files of the dump beside it",
            )
    return {digest: constants[digest] for digest in named}


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{', '.join(tensor.shape)}]"


@contextmanager
def _located(file: Path, text: str) -> Generator[None]:
    """Errors inside are about the text of a file: they say which line."""
    try:
        yield
    except BadInput as error:
        where = f"{file}, {error.at}" if error.at else str(file)
        raise BadInput(error.what, at=where, hint=error.hint) from None
    except IRError as error:
        why, *shown = error.what.split("\n")
        marked = next((line.strip()[2:] for line in shown if line.strip().startswith("> ")), "")
        lines = [number for number, line in enumerate(text.splitlines(), 1) if marked in line]
        place = (
            f", line {lines[0]}: {marked.strip()}"
            if marked and lines
            else f", {error.at or 'text'}"
        )
        raise BadInput(why, at=f"{file}{place}", hint="see docs/aicf.md and docs/mcir.md") from None


def write_model(folder: Path, known: About, options: Options) -> None:
    """Write what all stages know, for `stage_of`."""
    document = {
        "about": asdict(known),
        "options": {
            "targets": options.targets,
            "dims": {name: [d.low, d.typical, d.high] for name, d in options.dims},
            "precision": options.precision,
            "convolution": options.convolution,
        },
    }
    (folder / MODEL).write_text(json.dumps(document, indent=1))


def write_plan(folder: Path, place: str, target: str, scheduled: Scheduled) -> None:
    """Write the constants and decisions of a scheduled program, for `stage_of`."""
    write_constants(folder / _constants_file(place), scheduled.constants)
    document = {"target": target, "decisions": [asdict(d) for d in scheduled.decisions]}
    (folder / f"decisions-{place}.json").write_text(json.dumps(document, indent=1))


def write_constants(file: Path, constants: Mapping[str, Any]) -> None:
    """Arrays by digest, in the package's own format for weights."""
    with file.open("wb") as out:
        for piece in TensorFile(constants).chunks():
            out.write(piece)


def _constants_file(place: str) -> str:
    return f"constants-{place}.safetensors" if place else CONSTANTS


def read_constants(folder: Path, place: str = "") -> Arrays:
    """Arrays by digest, those of one target's schedule with its `place`; none if there is no such file."""
    file = folder / _constants_file(place)
    if not file.is_file():
        return {}
    found = read_tensors(memoryview(file.read_bytes()), str(file))
    return {name: tensor.array() for name, tensor in found.items()}


def about_from(document: Mapping[str, Any]) -> About:
    """What a dump says of its model."""
    given = dict(document["about"])
    return About(
        name=given["name"],
        onnx_nodes=given["onnx_nodes"],
        opset=given["opset"],
        inputs=_tensors(given["inputs"]),
        outputs=_tensors(given["outputs"]),
        ranges={name: (low, high) for name, (low, high) in given["ranges"].items()},
        operators=given["operators"],
        unused=tuple(given["unused"]),
        gone=given["gone"],
        remarks=tuple(given["remarks"]),
        demands=tuple(Demand(d["value"], d["sentence"]) for d in given["demands"]),
    )


def _tensors(given: Sequence[Mapping[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(Tensor(t["name"], t["dtype"], tuple(t["shape"])) for t in given)


def _options(document: Mapping[str, Any]) -> Options:
    given = document["options"]
    return Options(
        targets=tuple(given["targets"]),
        dims=tuple((name, DimRange(*sizes)) for name, sizes in given["dims"].items()),
        precision=given["precision"],
        convolution=given["convolution"],
    )


def _document(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        raise BadInput(
            f"{file.name} is missing beside the stage",
            at=file.parent,
            hint="keep a stage in the folder that --dump wrote, or copy that folder whole",
        ) from None
    except ValueError as error:
        raise BadInput(f"{file.name} cannot be read: {error}", at=file, hint="dump again") from None
