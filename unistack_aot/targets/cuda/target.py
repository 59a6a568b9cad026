"""The CUDA target: what it schedules, prints and builds, for GPUs and for the emulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unistack_aot.artifact.images import joined
from unistack_aot.base.errors import BadInput
from unistack_aot.emulator.build import compile_kernels
from unistack_aot.hw.machine import Machine, machine_for_arch
from unistack_aot.mcir.nodes import Kernel
from unistack_aot.mcir.program import Program
from unistack_aot.schedule.lifetimes import export
from unistack_aot.schedule.prepare import finish, prepare
from unistack_aot.targets.cuda.build import (
    FLAGS,
    GENERATIONS,
    INCLUDE,
    build_cubins,
    nvcc,
    resources,
    scratch_folder,
)
from unistack_aot.targets.cuda.indices import demand, largest
from unistack_aot.targets.cuda.legalize import legalize
from unistack_aot.targets.cuda.parts import parts
from unistack_aot.targets.cuda.sass import listings
from unistack_aot.targets.cuda.source import kernel_text, unit
from unistack_aot.targets.cuda.spills import (
    avoided,
    has_room,
    loop_way,
    refuse_spills,
    spilled_whole,
)
from unistack_aot.targets.target import Constants, Listings, Progress, Request, Scheduled, Source
from unistack_aot.targets.toolchain import folder_digest

CHECKED = "-checked"


@dataclass(frozen=True, slots=True)
class DeviceTarget:
    """One family of levels that share schedules and text; only the tool chain differs."""

    name: str
    suffix: str

    def levels(self, requested: str | None, precision: str = "f32") -> tuple[str, ...]:
        """All generations for `cuda`, the one named for `cuda:sm_90`; an error if the compiler is missing."""
        if requested is not None and not self._known(requested):
            raise BadInput(
                f"no GPU generation is called {requested!r}",
                hint=f"use one of {', '.join(GENERATIONS)}",
            )
        if self.name == "cuda":
            nvcc()
        return GENERATIONS if requested is None else (requested,)

    def _known(self, level: str) -> bool:
        return (_generation(level) if self.name == "emulator" else level) in GENERATIONS

    def machine(self, level: str) -> Machine:
        """The built-in property map of a generation."""
        return machine_for_arch(_generation(level))

    def toolchain(self, level: str) -> str:
        """Compiler, flags and device headers."""
        version = nvcc().version if self.name == "cuda" else self.name
        return " ".join((version, *FLAGS, level, folder_digest(INCLUDE)))

    def schedule(self, program: Program, constants: Constants, request: Request) -> Scheduled:
        """Decide every kernel for this generation."""
        machine = request.on(self.machine(request.level))
        small = spilled_whole(request.avoid)
        program, fused = prepare(program, constants, request.ranges, request.verify, machine, small)
        legal = legalize(
            program,
            dict(constants),
            request.ranges,
            machine,
            request.precision,
            request.avoid,
            request.picks,
        )
        program, reused = finish(legal.program, request.ranges, request.verify)
        decided = (*fused, *legal.decisions, *reused)
        return Scheduled(program, legal.constants, decided, legal.choices)

    def emit(
        self, program: Program, request: Request, keys: dict[str, str], dims: dict[str, int]
    ) -> Source:
        """One translation unit with all kernels."""
        exported = export(program, keys)
        origins: dict[Kernel, tuple[str, ...]] = {}
        for launch in exported.launches:
            known = origins.get(launch.kernel, ())
            origins[launch.kernel] = tuple(dict.fromkeys((*known, *launch.origins)))
        texts = tuple(
            kernel_text(
                f"k{number}",
                kernel,
                request.ranges,
                origins[kernel],
                loop_way(request.avoid, origins[kernel]),
                has_room(request.avoid, origins[kernel]),
            )
            for number, kernel in enumerate(exported.kernels)
        )
        files = (("kernels.cu", unit(texts)),)
        kernels = tuple(each.described for each in texts)
        needs = (_generation(request.level),)
        ways = {each.described.symbol: each.way for each in texts}
        asked = largest((size for each in texts for size in each.narrow), request.ranges)
        demands = tuple(map(demand, asked))
        return Source(files, kernels, exported.buffers, exported.steps, needs, ways, demands)

    def build(self, source: Source, request: Request, progress: Progress) -> bytes:
        """Run the tool chain on the unit; an error if a kernel spills registers."""
        if self.name == "cuda":
            return _cubin(source, request, progress)
        progress(request.name, 0, 1)
        done = _emulated(source, request.level)
        progress(request.name, 1, 1)
        return done

    def listings(self, source: Source, code: bytes, level: str, intermediate: bool) -> Listings:
        """SASS of each kernel with its source lines, and PTX if asked for; nothing for an image of the emulator."""
        if self.name == "emulator":
            return Listings()
        return listings(source, code, level, intermediate)


def _cubin(source: Source, request: Request, progress: Progress) -> bytes:
    """The parts of the unit, those of kernels that once spilled by themselves; what did not change is in the cache."""
    ((_, text),) = source.files
    apart = {k.symbol for k in source.kernels if avoided(request.avoid, k.origins)}
    texts = parts(text, apart)
    progress(request.name, 0, len(texts))
    built = build_cubins(
        request.level, texts, lambda done: progress(request.name, done, len(texts))
    )
    found = resources("".join(each.log for each in built))
    refuse_spills(source, found, request.avoid, request.on(machine_for_arch(request.level)))
    return joined([each.data for each in built])


def _generation(level: str) -> str:
    """sm_90 of "sm_90-checked", whose image counts traffic and watches for races."""
    return level.removesuffix(CHECKED)


def _emulated(source: Source, level: str) -> bytes:
    ((_, text),) = source.files
    with scratch_folder() as folder:
        image = Path(folder) / "kernels.so"
        number = int(_generation(level).removeprefix("sm_"))
        compile_kernels(text, image, number, (INCLUDE,), level.endswith(CHECKED))
        return image.read_bytes()


CUDA = DeviceTarget("cuda", ".cubin")
EMULATOR = DeviceTarget("emulator", ".so")
