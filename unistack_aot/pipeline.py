"""THE ordered list of passes from an ONNX model to a package; read this page first.

import -> rules -> lower -> [per target: schedule -> print -> build] -> package
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Protocol, TypeVar

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Input
from unistack_aot.aicf.types import TensorType
from unistack_aot.artifact import manifest
from unistack_aot.artifact.tensors import TensorFile
from unistack_aot.artifact.writer import Written, write_package
from unistack_aot.base.options import DimRange, DimRequest, Options, dim_ranges
from unistack_aot.base.symbolic import Ranges, text
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.roofline import Prediction
from unistack_aot.lower import lower_graph
from unistack_aot.mcir.program import Kind, Program
from unistack_aot.mcir.stages.lowered import LOWERED
from unistack_aot.mcir.stages.scheduled import SCHEDULED
from unistack_aot.mcir.verify_program import verify_program
from unistack_aot.onnx_in import Imported, import_model
from unistack_aot.onnx_in.dims import LARGEST
from unistack_aot.onnx_in.read import Model
from unistack_aot.rules import RuleReport, apply_rules
from unistack_aot.runtime.layout import certify
from unistack_aot.schedule.cost import predict_program, prediction_records
from unistack_aot.schedule.decision import Record, records
from unistack_aot.targets.registry import split_name
from unistack_aot.targets.target import (
    BuiltBadly,
    Constants,
    Progress,
    Request,
    Scheduled,
    Source,
    Target,
)

VERSION = "0.1.0"
UNBOUNDED = LARGEST
"""The greatest extent of a dimension without a declared bound; index arithmetic relies on it."""
MOST_DOUBLINGS = 12
MORE_BUILDS = 12
"""How often a variant is scheduled again because the tool chain could not build a choice well."""
T = TypeVar("T")


class Watch(Protocol):
    """Sees the result of each named stage, and gives what goes on: the same, or a replacement."""

    def __call__(self, stage: str, value: T, /) -> T: ...


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """Recorded runs for the package's self-test, their files by member name, and a remark."""

    entries: tuple[manifest.Golden, ...] = ()
    files: Mapping[str, TensorFile] = field(default_factory=dict[str, TensorFile])
    remark: str = ""


GoldenMaker = Callable[[Imported], GoldenSet]


def unwatched(stage: str, value: T, /) -> T:
    """Watches nothing."""
    return value


@dataclass(frozen=True, slots=True)
class VariantReport:
    """What was built for one target, and how long it took in seconds.

    `predicted` is the time of a run at the sizes `at`, on the machine that map `map` describes.
    """

    target: str
    kernels: int
    launches: int
    build_seconds: float
    predicted: float
    at: Mapping[str, int]
    map: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a compilation did."""

    model: str
    onnx_nodes: int
    aicf_nodes: int
    rules: RuleReport
    opset: int
    variants: tuple[VariantReport, ...]
    golden: str
    remarks: tuple[str, ...]
    written: Written
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Built:
    """One variant ready to be packed: manifest entry, machine code, constants."""

    variant: manifest.Variant
    code: bytes
    constants: Constants
    report: VariantReport
    decisions: Sequence[Record] = ()


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who looks on: `progress` counts tool runs, `watch` sees stages, `golden` records runs."""

    progress: Progress = lambda name, done, total: None
    watch: Watch = unwatched
    golden: GoldenMaker | None = None


def compile_model(
    model: Model,
    output: str | Path,
    targets: Sequence[str] = ("cpu",),
    dims: Mapping[str, DimRequest] | None = None,
    precision: str = "f32",
    hooks: Hooks = Hooks(),
    override: Path | None = None,
) -> Report:
    """Compile a model into one package file.

    `targets` as in "cpu:x86-64-v3"; `dims` bounds symbolic dimensions: {"batch": (1, 8)}. Raises
    UnistackError subclasses for every user's mistake; nothing is written then.
    """
    options = Options(
        targets=tuple(targets),
        dims=dim_ranges(dims or {}),
        precision=precision,  # type: ignore[arg-type]
        override=override,
    )
    requests = requested(options)
    clock = Clock()
    imported = clock.time("import", lambda: import_model(model, _declared(options)))
    return compile_imported(imported, output, options, requests, hooks, clock)


def compile_imported(
    imported: Imported,
    output: str | Path,
    options: Options,
    requests: Sequence[tuple[Target, str, str]],
    hooks: Hooks,
    clock: Clock,
) -> Report:
    """Everything after the import: rules, lowering, each target, the package."""
    imported = hooks.watch("imported", imported)
    graph, fired = clock.time("rules", lambda: apply_rules(imported.graph, imported.origins))
    graph = hooks.watch("rules", graph)
    lowered = clock.time("lower", lambda: lower_graph(graph, imported.origins))
    naive, constants = hooks.watch("lowered", lowered)
    ranges: Ranges = dict(imported.ranges.items())
    clock.time("verify", lambda: verify_program(naive, LOWERED, ranges))
    built = [
        _variant(
            target,
            Request(name, level, options.precision, ranges),
            naive,
            constants,
            graph,
            manifest_dims(imported.ranges, options),
            hooks,
        )
        for target, name, level in requests
    ]
    make = hooks.golden
    golden = GoldenSet() if make is None else clock.time("golden", lambda: make(imported))
    written = clock.time(
        "write", lambda: _write(Path(output), imported, graph, built, golden, options)
    )
    return Report(
        imported.name,
        imported.report.onnx_nodes,
        sum(1 for _ in graph.nodes()),
        fired,
        max(
            opset
            for domain, opset in imported.opsets.items()
            if not domain or len(imported.opsets) == 1
        ),
        tuple(b.report for b in built),
        golden.remark,
        (*imported.report.assumed, *imported.report.refused),
        written,
        clock.seconds,
    )


class Clock:
    """Wall time of named steps, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, work: Callable[[], T]) -> T:
        """Run `work` and note how long it took."""
        start = perf_counter()
        result = work()
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start
        return result


def requested(options: Options) -> list[tuple[Target, str, str]]:
    """Target, full name and level of each variant; errors name what is unknown or missing."""
    found: list[tuple[Target, str, str]] = []
    for written in options.targets:
        target, level = split_name(written)
        found += [(target, f"{target.name}:{each}", each) for each in target.levels(level)]
    return list({name: (target, name, level) for target, name, level in found}.values())


def _declared(options: Options) -> dict[str, int | tuple[int, ...]]:
    return {
        name: size.low if size.low == size.high else (size.low, size.high)
        for name, size in options.dims
    }


def _variant(
    target: Target,
    request: Request,
    naive: Program,
    constants: Constants,
    graph: Graph,
    sizes: Sequence[manifest.Dim],
    hooks: Hooks,
) -> Built:
    start = perf_counter()
    scheduled, source, code = _realised(target, request, naive, constants, graph, hooks)
    used = {b.key for b in source.buffers if b.kind == "constant"}
    kept = {key: array for key, array in scheduled.constants.items() if key in used}
    member = f"{request.name.replace(':', '/')}{target.suffix}"
    variant = manifest.Variant(
        target=request.name,
        code=member,
        buffers=source.buffers,
        kernels=source.kernels,
        steps=source.steps,
        needs=source.needs,
        weights=("weights.safetensors",),
    )
    variant = replace(variant, certificates=certificates(variant, sizes))
    launches, machine = len(variant.launches), target.machine(request.level)
    at, times = _predicted(scheduled.program, machine, sizes)
    report = VariantReport(
        request.name,
        len(source.kernels),
        launches,
        perf_counter() - start,
        sum(time.seconds for time in times),
        at,
        machine.id,
    )
    decided = records(scheduled.decisions, scheduled.program)
    predicted = prediction_records(scheduled.program, times, machine)
    return Built(variant, code, kept, report, (*decided, *predicted))


def _predicted(
    program: Program, machine: Machine, sizes: Sequence[manifest.Dim]
) -> tuple[dict[str, int], tuple[Prediction, ...]]:
    """Predicted times at the typical sizes, doubled while an extent that divides others is 0 at them."""
    at = {size.name: max(1, size.typical) for size in sizes}
    for _ in range(MOST_DOUBLINGS):
        try:
            return at, predict_program(program, machine, at)
        except ZeroDivisionError:
            at = {size.name: min(2 * at[size.name], size.high) for size in sizes}
    return at, predict_program(program, machine, at)


def _realised(
    target: Target,
    request: Request,
    naive: Program,
    constants: Constants,
    graph: Graph,
    hooks: Hooks,
    again: int = MORE_BUILDS,
) -> tuple[Scheduled, Source, bytes]:
    """Schedule, print and build; again with other choices where the tool chain could not build some well."""
    scheduled = target.schedule(naive, constants, request)
    scheduled = hooks.watch(f"scheduled {request.name}", scheduled)
    verify_program(scheduled.program, SCHEDULED, request.ranges)
    dims = {name: number for number, name in enumerate(request.ranges)}
    source = target.emit(scheduled.program, request, signature_keys(graph, scheduled.program), dims)
    source = hooks.watch(f"source {request.name}", source)
    try:
        code = target.build(source, request, hooks.progress)
    except BuiltBadly as found:
        if again == 0:
            raise
        request = replace(request, avoid=(*request.avoid, *found.avoid))
        return _realised(target, request, naive, constants, graph, hooks, again - 1)
    hooks.watch(f"code {request.name}", code)
    return scheduled, source, code


def certificates(
    variant: manifest.Variant, dims: Sequence[manifest.Dim]
) -> tuple[manifest.Certificate, ...]:
    """Arena bytes and far traffic at the lowest, typical and (if bounded) highest sizes."""
    choices = [
        {dim.name: dim.low for dim in dims},
        {dim.name: dim.typical for dim in dims},
        {dim.name: dim.typical if dim.high >= UNBOUNDED else dim.high for dim in dims},
    ]
    distinct = {tuple(sorted(choice.items())): choice for choice in choices}
    return tuple(certify(variant, choice) for choice in distinct.values())


def signature_keys(graph: Graph, program: Program) -> dict[str, str]:
    """The signature's names of input and output buffers."""
    inputs = [b.name for b in program.buffers if b.kind is Kind.INPUT]
    outputs = [b.name for b in program.buffers if b.kind is Kind.OUTPUT]
    labels = [node.op.label for node in graph.inputs if isinstance(node.op, Input)]
    names = [name for name, _ in graph.outputs]
    return dict(zip((*inputs, *outputs), (*labels, *names), strict=True))


def _tensor(name: str, kind: TensorType) -> manifest.Tensor:
    return manifest.Tensor(name, kind.dtype.name, tuple(text(d) for d in kind.shape))


def manifest_dims(
    ranges: Mapping[str, tuple[int, int | None]], options: Options | None = None
) -> tuple[manifest.Dim, ...]:
    """The symbolic dimensions as the package describes them."""
    return tuple(
        _dim(name, bounds, options.dim(name) if options else None)
        for name, bounds in ranges.items()
    )


def _dim(name: str, bounds: tuple[int, int | None], asked: DimRange | None) -> manifest.Dim:
    low, high = bounds
    last = UNBOUNDED if high is None else high
    typical = low if high is None else high
    if asked is not None and low <= asked.typical <= last:
        typical = asked.typical
    return manifest.Dim(name, low, last, typical)


def _write(
    path: Path,
    imported: Imported,
    graph: Graph,
    built: Sequence[Built],
    golden: GoldenSet,
    options: Options,
) -> Written:
    constants = {key: array for b in built for key, array in b.constants.items()}
    description = manifest.Manifest(
        producer=f"unistack_aot {VERSION}",
        model=imported.name,
        inputs=tuple(_tensor(node.op.label, node.tensor) for node in graph.inputs),  # type: ignore[attr-defined]
        outputs=tuple(_tensor(name, node.tensor) for name, node in graph.outputs),
        variants=tuple(b.variant for b in built),
        dims=manifest_dims(imported.ranges, options),
        golden=golden.entries,
        options=(f"precision={options.precision}",),
    )
    contents: dict[str, object] = {b.variant.code: b.code for b in built}
    contents["weights.safetensors"] = TensorFile(constants)
    contents.update(golden.files)
    contents["lock.json"] = json.dumps(_lock(built, options), sort_keys=True, indent=1).encode()
    return write_package(path, description, contents)  # type: ignore[arg-type]


def _lock(built: Sequence[Built], options: Options) -> dict[str, object]:
    """What was asked and what was decided, by variant; docs/mcir.md describes it."""
    decisions = {b.variant.target: list(b.decisions) for b in built}
    predicted = {
        b.variant.target: {
            "seconds": b.report.predicted,
            "at": dict(b.report.at),
            "map": b.report.map,
        }
        for b in built
    }
    return {"options": options.digest, "decisions": decisions, "predicted": predicted}
