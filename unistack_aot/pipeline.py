"""THE ordered list of passes from an ONNX model to a package; read this page first.

import -> rules -> lower -> [per target: schedule -> print -> build] -> package

Compilation may begin at any stage (`Imported`, `Ruled`, `Lowered`, `Planned`): see `go_on`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Protocol, TypeVar

from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.verify import verify
from unistack_aot.artifact import manifest
from unistack_aot.artifact.writer import Written
from unistack_aot.base.errors import BadInput
from unistack_aot.base.options import DimRequest, Options, dim_ranges
from unistack_aot.base.symbolic import Ranges
from unistack_aot.hw import propmap
from unistack_aot.hw.catalogue import by_arch
from unistack_aot.hw.propmap import PropertyMap
from unistack_aot.lower import lower_graph
from unistack_aot.mcir.program import Kind, Program
from unistack_aot.mcir.stages.lowered import LOWERED
from unistack_aot.mcir.stages.scheduled import SCHEDULED
from unistack_aot.mcir.verify_program import verify_program
from unistack_aot.onnx_in import Imported, import_model
from unistack_aot.onnx_in.read import Model
from unistack_aot.packing import (
    About,
    Built,
    Clock,
    GoldenSet,
    Trial,
    Tuner,
    VariantReport,
    about,
    certificates,
    manifest_dims,
    pack,
    shaped,
    signature,
)
from unistack_aot.rules import RuleReport, apply_rules
from unistack_aot.rules.fates import fates
from unistack_aot.schedule.cost import predict_usual, prediction_records
from unistack_aot.schedule.decision import records
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
from unistack_aot.targets.toolchain import stop_tools

MORE_BUILDS = 12
"""How often a variant is scheduled again because the tool chain could not build a choice well."""
T = TypeVar("T")


class Watch(Protocol):
    """Sees the result of each named stage, and gives what goes on: the same, or a replacement."""

    def __call__(self, stage: str, value: T, /) -> T: ...


GoldenMaker = Callable[["Imported | None"], GoldenSet]


def unwatched(stage: str, value: T, /) -> T:
    """Watches nothing."""
    return value


@dataclass(frozen=True, slots=True)
class Report:
    """What a compilation did; `rules` is None if it began after them."""

    model: str
    onnx_nodes: int
    rules: RuleReport | None
    opset: int
    variants: tuple[VariantReport, ...]
    golden: str
    remarks: tuple[str, ...]
    written: Written
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Ruled:
    """A graph that the rules are done with."""

    known: About
    graph: Graph
    origins: Origins
    rules: RuleReport | None = None


@dataclass(frozen=True, slots=True)
class Lowered:
    """A memory program without decisions, and its constants by digest."""

    known: About
    program: Program
    constants: Constants
    rules: RuleReport | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """The decided program of one target."""

    known: About
    target: str
    scheduled: Scheduled


Stage = Imported | Ruled | Lowered | Planned


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who looks on: `progress` counts tool runs, `watch` sees stages, `golden` records runs.

    While a variant's schedule is chosen, `progress` hears 0 of 0. `tuner` measures before a variant is built for good.
    """

    progress: Progress = lambda name, done, total: None
    watch: Watch = unwatched
    golden: GoldenMaker | None = None
    tuner: Tuner | None = None


def compile_model(
    model: Model,
    output: str | Path,
    targets: Sequence[str] = ("cpu",),
    dims: Mapping[str, DimRequest] | None = None,
    precision: str = "f32",
    hooks: Hooks = Hooks(),
    override: Path | None = None,
    convolution: str = "fast",
    maps: Sequence[PropertyMap] = (),
) -> Report:
    """Compile a model into one package file.

    `targets` as in "cpu:x86-64-v3"; `dims` bounds symbolic dimensions: {"batch": (1, 8)}; `maps`
    describe the machines of their architectures instead of the built-in ones. Raises UnistackError
    subclasses for every user's mistake; nothing is written then.
    """
    options = Options(
        targets=tuple(targets),
        dims=dim_ranges(dims or {}),
        precision=precision,  # type: ignore[arg-type]
        convolution=convolution,  # type: ignore[arg-type]
        override=override,
        maps=tuple(propmap.text(each) for each in maps),
    )
    requests = requested(options)
    by_arch(maps, [level for _, _, level in requests])
    clock = Clock()
    imported = clock.time("import", lambda: import_model(model, declared(options)))
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
    clock.time("verify", lambda: verify(imported.graph))
    graph, fired = clock.time(
        "rules",
        lambda: apply_rules(
            imported.graph, imported.origins, options.verify, dict(imported.ranges)
        ),
    )
    graph = hooks.watch("rules", graph)
    ruled = Ruled(about(imported), graph, imported.origins, fired)
    lowered = _lowered(ruled, hooks, clock)
    return _compile_lowered(lowered, output, options, requests, hooks, clock, imported)


def go_on(stage: Stage, output: str | Path, options: Options, hooks: Hooks, clock: Clock) -> Report:
    """Compile from a stage on; what comes before it is not done again."""
    requests = requested(options)
    match stage:
        case Imported():
            return compile_imported(stage, output, options, requests, hooks, clock)
        case Ruled():
            hooks.watch("rules", stage.graph)
            lowered = _lowered(stage, hooks, clock)
            return _compile_lowered(lowered, output, options, requests, hooks, clock)
        case Lowered():
            hooks.watch("lowered", (stage.program, stage.constants))
            hooks.watch("about", stage.known)
            return _compile_lowered(stage, output, options, requests, hooks, clock)
        case Planned():
            hooks.watch("about", stage.known)
            return _compile_planned(stage, output, options, requests, hooks, clock)


def _lowered(ruled: Ruled, hooks: Hooks, clock: Clock) -> Lowered:
    """The program of a graph, and why some of the model's nodes have no kernel."""
    graph, rules, known = ruled.graph, ruled.rules, ruled.known
    clock.time("verify", lambda: verify(graph))
    lowered = clock.time("lower", lambda: lower_graph(graph, ruled.origins))
    program, constants = hooks.watch("lowered", lowered)
    launched = frozenset(name for launch in program.launches() for name in launch.origins)
    gone = fates(
        known.operators,
        known.unused,
        graph,
        ruled.origins,
        rules.firings if rules else (),
        launched,
    )
    # what went before the stage at which compilation began is known from then
    known = replace(known, gone={**known.gone, **gone})
    return Lowered(hooks.watch("about", known), program, constants, rules)


def _request(
    name: str,
    level: str,
    options: Options,
    ranges: Ranges,
    maps: Mapping[str, PropertyMap] = MappingProxyType({}),
) -> Request:
    return Request(
        name,
        level,
        options.precision,
        ranges,
        options.convolution,
        verify=options.verify,
        map=maps.get(level),
    )


def _compile_lowered(
    lowered: Lowered,
    output: str | Path,
    options: Options,
    requests: Sequence[tuple[Target, str, str]],
    hooks: Hooks,
    clock: Clock,
    imported: Imported | None = None,
) -> Report:
    known = lowered.known
    ranges = dict(known.ranges.items())
    clock.time("verify", lambda: verify_program(lowered.program, LOWERED, ranges))
    maps = by_arch(
        [propmap.parse(json.loads(text), "--map") for text in options.maps],
        [level for _, _, level in requests],
    )
    work = [
        Work(target, _request(name, level, options, ranges, maps), lowered, hooks)
        for target, name, level in requests
    ]
    sizes = manifest_dims(known.ranges, options)
    if hooks.tuner is not None:
        work = [_tuned(each, hooks.tuner, sizes, options, imported) for each in work]
    built = clock.time("targets", lambda: _built_together(work, sizes))
    return _packed(known, built, lowered.rules, output, options, hooks, clock, imported)


def _tuned(
    work: Work,
    tuner: Tuner,
    sizes: Sequence[manifest.Dim],
    options: Options,
    imported: Imported | None,
) -> Work:
    """The work with the ways of kernels that measurements chose."""

    def build(request: Request, path: Path) -> Trial:
        (made,) = _built_together([replace(work, request=request, hooks=Hooks())], sizes)
        pack(path, work.lowered.known, [made], GoldenSet(), options)
        graph = None if imported is None else imported.graph
        return Trial(path, made.choices, made.launches, graph)

    found = tuner(work.target, work.request, build)
    return replace(work, request=found.request, tuned=found.remark)


def _compile_planned(
    stage: Planned,
    output: str | Path,
    options: Options,
    requests: Sequence[tuple[Target, str, str]],
    hooks: Hooks,
    clock: Clock,
) -> Report:
    """Print, build and pack a decided program for its one target."""
    found = [each for each in requests if each[1] == stage.target]
    if not found:
        raise BadInput(
            f"the stage is of {stage.target}", hint=f"compile with --target {stage.target}"
        )
    target, name, level = found[0]
    known = stage.known
    ranges = dict(known.ranges.items())
    lowered = Lowered(known, stage.scheduled.program, stage.scheduled.constants)
    work = Work(target, _request(name, level, options, ranges), lowered, hooks, stage)
    built = _built_together([work], manifest_dims(known.ranges, options))
    return _packed(known, built, None, output, options, hooks, clock, None)


def _packed(
    known: About,
    built: Sequence[Built],
    rules: RuleReport | None,
    output: str | Path,
    options: Options,
    hooks: Hooks,
    clock: Clock,
    imported: Imported | None,
) -> Report:
    """Record runs, write the package, and say what was done."""
    make = hooks.golden
    golden = GoldenSet() if make is None else clock.time("golden", lambda: make(imported))
    written = clock.time("write", lambda: pack(Path(output), known, built, golden, options))
    return Report(
        known.name,
        known.onnx_nodes,
        rules,
        known.opset,
        tuple(b.report for b in built),
        golden.remark,
        known.remarks,
        written,
        clock.seconds,
    )


def requested(options: Options) -> list[tuple[Target, str, str]]:
    """Target, full name and level of each variant; errors name what is unknown or missing."""
    found: list[tuple[Target, str, str]] = []
    for written in options.targets:
        target, level = split_name(written)
        found += [(target, f"{target.name}:{each}", each) for each in target.levels(level)]
    return list({name: (target, name, level) for target, name, level in found}.values())


def declared(options: Options) -> dict[str, int | tuple[int, ...]]:
    """What the import must know of dimensions: {"batch": 8} or {"batch": (1, 8)}."""
    return {
        name: size.low if size.low == size.high else (size.low, size.high)
        for name, size in options.dims
    }


@dataclass(frozen=True, slots=True)
class Work:
    """One variant to make: for which target, from what; `planned` if all is decided already.

    `tuned` says what was measured for it.
    """

    target: Target
    request: Request
    lowered: Lowered
    hooks: Hooks
    planned: Planned | None = None
    tuned: str = ""

    def source(self) -> tuple[Scheduled, Source]:
        """Schedule and print."""
        lowered, request, watch = self.lowered, self.request, self.hooks.watch
        self.hooks.progress(request.name, 0, 0)
        if self.planned is not None:
            scheduled = self.planned.scheduled
        else:
            scheduled = self.target.schedule(lowered.program, lowered.constants, request)
        scheduled = watch(f"scheduled {request.name}", scheduled)
        verify_program(scheduled.program, SCHEDULED, request.ranges)
        dims = {name: number for number, name in enumerate(request.ranges)}
        names = [t.name for t in lowered.known.inputs], [t.name for t in lowered.known.outputs]
        keys = _keys(scheduled.program, *names)
        source = self.target.emit(scheduled.program, request, keys, dims)
        return scheduled, watch(f"source {request.name}", source)

    def code(self, source: Source) -> tuple[bytes, float]:
        """Build; the machine code, and the seconds it took. May run beside other work."""
        start = perf_counter()
        code = self.target.build(source, self.request, self.hooks.progress)
        return code, perf_counter() - start


@dataclass(frozen=True, slots=True)
class Building:
    """A variant whose tools are running; `seconds` were spent before that."""

    work: Work
    scheduled: Scheduled
    source: Source
    code: Future[tuple[bytes, float]]
    seconds: float


def _built_together(work: Sequence[Work], sizes: Sequence[manifest.Dim]) -> list[Built]:
    """All variants: the tools of one run while the next is scheduled."""
    with ThreadPoolExecutor(max(1, len(work)), "build") as pool:
        try:
            started = [_started(each, pool) for each in work]
            return [_finished(each, pool, sizes) for each in started]
        except BaseException:
            stop_tools()
            raise


def _started(work: Work, pool: ThreadPoolExecutor) -> Building:
    start = perf_counter()
    scheduled, source = work.source()
    spent = perf_counter() - start
    return Building(work, scheduled, source, pool.submit(work.code, source), spent)


def _finished(building: Building, pool: ThreadPoolExecutor, sizes: Sequence[manifest.Dim]) -> Built:
    """The variant; scheduled again with other choices where the tool chain could not build some well."""
    for attempt in range(MORE_BUILDS + 1):
        work = building.work
        try:
            code, seconds = building.code.result()
        except BuiltBadly as found:
            if attempt == MORE_BUILDS or work.planned is not None:
                raise
            request = replace(work.request, avoid=(*work.request.avoid, *found.avoid))
            again = _started(replace(work, request=request), pool)
            building = replace(again, seconds=building.seconds + again.seconds)
            continue
        work.hooks.watch(f"code {work.request.name}", code)
        return _variant(building, code, building.seconds + seconds, sizes)
    raise AssertionError("a build either ends or raises")


def _variant(
    building: Building, code: bytes, seconds: float, sizes: Sequence[manifest.Dim]
) -> Built:
    target, request = building.work.target, building.work.request
    scheduled, source = building.scheduled, building.source
    used = {b.key for b in source.buffers if b.kind == "constant"}
    kept = {key: array for key, array in scheduled.constants.items() if key in used}
    variant = manifest.Variant(
        target=request.name,
        code=f"{request.name.replace(':', '/')}{target.suffix}",
        buffers=source.buffers,
        kernels=source.kernels,
        steps=source.steps,
        needs=source.needs,
        weights=("weights.safetensors",),
    )
    variant = replace(variant, certificates=certificates(variant, sizes))
    launches, machine = len(variant.launches), request.on(target.machine(request.level))
    typical = {size.name: size.typical for size in sizes}
    highest = {size.name: size.high for size in sizes}
    at, times = predict_usual(scheduled.program, machine, typical, highest)
    report = VariantReport(
        request.name,
        len(source.kernels),
        launches,
        seconds,
        sum(time.seconds for time in times),
        at,
        machine.id,
        building.work.tuned,
    )
    decided = records(scheduled.decisions, scheduled.program)
    predicted = prediction_records(scheduled.program, times, machine)
    noted = (*decided, *predicted)
    return Built(variant, code, kept, report, noted, scheduled.choices, shaped(scheduled))


def signature_keys(graph: Graph, program: Program) -> dict[str, str]:
    """The signature's names of input and output buffers."""
    return _keys(program, *signature(graph))


def _keys(program: Program, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    buffers = [b.name for b in program.buffers if b.kind is Kind.INPUT]
    buffers += [b.name for b in program.buffers if b.kind is Kind.OUTPUT]
    return dict(zip(buffers, (*inputs, *outputs), strict=True))
