"""The host CPU target: what it schedules, prints and builds."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.artifact import manifest
from unistack_aot.base.dtypes import parse_dtype
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import text
from unistack_aot.codegen.kernel import dimensions
from unistack_aot.hw.machine import Machine, machine_for_arch
from unistack_aot.mcir.counts import count
from unistack_aot.mcir.nodes import Access, Kernel
from unistack_aot.mcir.program import Program
from unistack_aot.schedule.layouts import choose_layouts
from unistack_aot.schedule.lifetimes import export
from unistack_aot.schedule.prepare import finish, prepare
from unistack_aot.schedule.wide_storage import widen_storage
from unistack_aot.targets.cpu.build import (
    FLAGS,
    INCLUDE,
    LEVELS,
    compiler,
    level_flags,
    link_job,
    object_job,
    shipped,
)
from unistack_aot.targets.cpu.legalize import legalize
from unistack_aot.targets.cpu.source import entry, kernel_text, unit
from unistack_aot.targets.target import Constants, Listings, Progress, Request, Scheduled, Source
from unistack_aot.targets.toolchain import folder_digest, run_job, run_jobs

KERNELS_PER_UNIT = 12
BLOCK = 16  # channels per block, on every level: one panel of the tile instruction
name = "cpu"
suffix = ".so"


def levels(requested: str | None, precision: str = "f32") -> tuple[str, ...]:
    """The instruction-set levels for `cpu` (several, the best first) or `cpu:level`."""
    if requested is None:
        return shipped(precision)
    if requested not in LEVELS:
        raise BadInput(
            f"no instruction-set level is called {requested!r}",
            hint=f"use one of {', '.join(LEVELS)}",
        )
    compiler(LEVELS[requested])
    return (requested,)


def machine(level: str) -> Machine:
    """The built-in property map of a level, so that results do not depend on the building machine."""
    return machine_for_arch(level)


def toolchain(level: str) -> str:
    """Compiler, flags and device headers."""
    isa = LEVELS[level]
    tool = compiler(isa)
    return " ".join((tool.version, *FLAGS, *level_flags(tool, isa), folder_digest(INCLUDE)))


def schedule(program: Program, constants: Constants, request: Request) -> Scheduled:
    """Decide every kernel for this level."""
    target = request.on(machine(request.level))
    program, fused = prepare(program, constants, request.ranges, request.verify, target)
    wide = widen_storage(program, constants)
    program, laid = choose_layouts(wide.program, BLOCK, request.ranges)
    legal = legalize(program, wide.constants, request, target, wide.narrow)
    program, reused = finish(legal.program, request.ranges, request.verify)
    decided = (*fused, *wide.decisions, *laid, *legal.decisions, *reused)
    return Scheduled(program, legal.constants, decided, legal.choices)


def emit(program: Program, request: Request, keys: dict[str, str], dims: dict[str, int]) -> Source:
    """Translation units of the kernels, and one with the launch table."""
    exported = export(program, keys)
    symbols = {kernel: f"k{number}" for number, kernel in enumerate(exported.kernels)}
    origins: dict[Kernel, tuple[str, ...]] = {}
    for launch in exported.launches:
        known = origins.get(launch.kernel, ())
        origins[launch.kernel] = tuple(dict.fromkeys((*known, *launch.origins)))
    texts = tuple(kernel_text(symbols[k], k, request.ranges, origins[k]) for k in exported.kernels)
    files = [("entry", entry(texts, exported.launches, symbols, exported.numbers, dims))]
    for start in range(0, len(texts), KERNELS_PER_UNIT):
        number = start // KERNELS_PER_UNIT
        files.append((f"kernels_{number}", unit(texts[start : start + KERNELS_PER_UNIT])))
    kernels = tuple(_described(symbols[k], k, origins[k]) for k in exported.kernels)
    needs = LEVELS[request.level].needs
    buffers = tuple(_where_given(buffer) for buffer in exported.buffers)
    return Source(tuple(files), kernels, buffers, exported.steps, needs)


def _where_given(buffer: manifest.Buffer) -> manifest.Buffer:
    """Inputs and outputs lie where the caller has them: kernels load and store at any address of an element."""
    if buffer.kind not in ("input", "output"):
        return buffer
    return replace(buffer, alignment=parse_dtype(buffer.dtype).bytes)


def build(source: Source, request: Request, progress: Progress) -> bytes:
    """Compile the units in parallel and link them."""
    isa = LEVELS[request.level]
    jobs = [object_job(isa, file, content) for file, content in source.files]
    done = run_jobs(jobs, lambda count: progress(request.name, count, len(jobs) + 1))
    objects = tuple(
        (f"{file}.o", outcome.data) for (file, _), outcome in zip(source.files, done, strict=True)
    )
    linked = run_job(link_job(isa, objects)).data
    progress(request.name, len(jobs) + 1, len(jobs) + 1)
    return linked


def listings(source: Source, code: bytes, level: str, intermediate: bool) -> Listings:
    """Nothing: any disassembler of this machine reads the library as it is."""
    return Listings()


def _described(symbol: str, kernel: Kernel, origins: tuple[str, ...]) -> manifest.Kernel:
    kinds: dict[Access, manifest.ParamKind] = {
        Access.IN: "in",
        Access.OUT: "out",
        Access.INOUT: "inout",
    }
    pointers = tuple(manifest.Param(p.name, kinds[p.access]) for p in kernel.params)
    sizes = tuple(manifest.Param(name, "dim64") for name in dimensions(kernel))
    counts = count(kernel)
    return manifest.Kernel(
        symbol,
        (*pointers, *sizes),
        origins=origins,
        flops=text(counts.flops),
        far_bytes=text(counts.far_bytes),
    )
