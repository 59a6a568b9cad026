"""What the pipeline asks of a target. Not here: which targets exist (registry.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from unistack_aot.artifact import manifest
from unistack_aot.base.errors import ToolFailed
from unistack_aot.base.symbolic import Ranges
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.propmap import PropertyMap
from unistack_aot.mcir.program import Program
from unistack_aot.schedule.choices import Choice, Pick, Picks
from unistack_aot.schedule.decision import Decision

Constants = Mapping[str, NDArray[Any]]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Avoided:
    """A way to realise launches of these ONNX nodes that the tool chain could not build well, and its words."""

    origins: tuple[str, ...]
    way: str
    because: str


class BuiltBadly(ToolFailed):
    """The tool chain built a program whose schedule holds bad choices: `avoid` them and schedule again."""

    def __init__(self, what: object, at: object, hint: str, avoid: tuple[Avoided, ...]) -> None:
        super().__init__(what, at, hint)
        self.avoid = avoid


@dataclass(frozen=True, slots=True)
class Request:
    """One variant to build: the target as written ("cpu:x86-64-v3"), precision and dimension ranges.

    `convolution` is "direct" where every sum must have the terms of its definition; `map` describes the machine to
    build for (None: the built-in map of the level); `whole`: rank every way of a kernel, not only those beside the
    usual one. `avoid` is what earlier builds of the same variant found out, `picks` what measurements of its kernels
    did; `verify` is the verification level, which changes nothing that is made.
    """

    name: str
    level: str
    precision: str
    ranges: Ranges
    convolution: str = "fast"
    avoid: tuple[Avoided, ...] = ()
    verify: int = 1
    picks: Picks = field(default_factory=dict[str, Pick])
    map: PropertyMap | None = None
    whole: bool = False

    def on(self, usual: Machine) -> Machine:
        """The machine to build for: that of the map, or the usual one."""
        return usual if self.map is None else Machine(self.map)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A program whose every kernel is decided, its constants (packed ones included) by key, and what was decided.

    `choices` are the decisions that measurements could make better.
    """

    program: Program
    constants: Constants
    decisions: tuple[Decision, ...] = ()
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Generated text by file name, and what the manifest says of its kernels.

    `ways` names, by kernel symbol, the choice that scheduling could make otherwise; `demands` are what dimensions must
    satisfy for this text.
    """

    files: tuple[tuple[str, str], ...]
    kernels: tuple[manifest.Kernel, ...]
    buffers: tuple[manifest.Buffer, ...]
    steps: tuple[manifest.Step, ...]
    needs: tuple[str, ...]
    ways: Mapping[str, str] = field(default_factory=dict[str, str])
    demands: tuple[manifest.Demand, ...] = ()


@dataclass(frozen=True, slots=True)
class Listings:
    """Machine code in words: texts by file name, a table of what is known of each kernel, or why there is none."""

    files: tuple[tuple[str, str], ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    missing: str = ""


class Target(Protocol):
    """One machine family."""

    @property
    def name(self) -> str:
        """The family as users write it."""
        ...

    @property
    def suffix(self) -> str:
        """How the file with the machine code ends."""
        ...

    def machine(self, level: str) -> Machine:
        """The built-in property map's answers for one level or generation."""
        ...

    def levels(self, requested: str | None, precision: str = "f32") -> tuple[str, ...]:
        """The levels to build for `cpu` or `cpu:level`, of products in a precision.

        Errors name the known levels or the missing tool.
        """
        ...

    def schedule(self, program: Program, constants: Constants, request: Request) -> Scheduled:
        """Decide every kernel for this target."""
        ...

    def emit(
        self, program: Program, request: Request, keys: dict[str, str], dims: dict[str, int]
    ) -> Source:
        """Print a scheduled program."""
        ...

    def toolchain(self, level: str) -> str:
        """The tool chain in words: a change of them means that machine code may differ."""
        ...

    def build(self, source: Source, request: Request, progress: Progress) -> bytes:
        """Run the tool chain; the variant's machine code. BuiltBadly if another schedule may build better."""
        ...

    def listings(self, source: Source, code: bytes, level: str, intermediate: bool) -> Listings:
        """What `build` made, to be read by people; with the tool chain's intermediate form if asked for."""
        ...
