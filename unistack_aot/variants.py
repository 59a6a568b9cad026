"""One variant of a package from a lowered program: schedule, print, build, and again where the tools found it bad.

Not here: what comes before and after (pipeline.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter

from unistack_aot.aicf.graph import Graph
from unistack_aot.artifact import manifest
from unistack_aot.mcir.program import Kind, Program
from unistack_aot.mcir.stages.scheduled import SCHEDULED
from unistack_aot.mcir.verify_program import verify_program
from unistack_aot.packing import Built, VariantReport, certificates, shaped, signature
from unistack_aot.schedule.cost import predict_usual, prediction_records
from unistack_aot.schedule.decision import records
from unistack_aot.stages import Hooks, Lowered, Planned
from unistack_aot.targets.target import BuiltBadly, Request, Scheduled, Source, Target
from unistack_aot.targets.toolchain import stop_tools

MORE_BUILDS = 12
"""How often a variant is scheduled again because the tool chain could not build a choice well."""


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


def build_variants(work: Sequence[Work], sizes: Sequence[manifest.Dim]) -> list[Built]:
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
        demands=source.demands,
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
