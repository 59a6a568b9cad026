"""THE ordered list of passes from an ONNX model to a package; read this page first.

import -> rules -> lower -> [per target: schedule -> print -> build] -> package

Compilation may begin at any stage (`Imported`, `Ruled`, `Lowered`, `Planned`): see `go_on`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

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
from unistack_aot.mcir.stages.lowered import LOWERED
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
    manifest_dims,
    pack,
)
from unistack_aot.rules import RuleReport, apply_rules
from unistack_aot.rules.fates import fates
from unistack_aot.stages import NOBODY, Hooks, Lowered, Planned, Ruled, Stage
from unistack_aot.targets.registry import split_name
from unistack_aot.targets.target import Request, Target
from unistack_aot.variants import Work, build_variants


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


def compile_model(
    model: Model,
    output: str | Path,
    targets: Sequence[str] = ("cpu",),
    dims: Mapping[str, DimRequest] | None = None,
    precision: str = "f32",
    hooks: Hooks = NOBODY,
    override: Path | None = None,
    convolution: str = "fast",
    maps: Sequence[PropertyMap] = (),
    verify: int | None = None,
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
    if verify is not None:
        options = replace(options, verify=verify)
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
    built = clock.time("targets", lambda: build_variants(work, sizes))
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
        (made,) = build_variants([replace(work, request=request, hooks=NOBODY)], sizes)
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
    built = build_variants([work], manifest_dims(known.ranges, options))
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
        levels = target.levels(level, options.precision)
        found += [(target, f"{target.name}:{each}", each) for each in levels]
    return list({name: (target, name, level) for target, name, level in found}.values())


def declared(options: Options) -> dict[str, int | tuple[int, ...]]:
    """What the import must know of dimensions: {"batch": 8} or {"batch": (1, 8)}."""
    return {
        name: size.low if size.low == size.high else (size.low, size.high)
        for name, size in options.dims
    }
