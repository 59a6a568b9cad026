"""What goes from pass to pass, and who may look on: the stages at which a compilation may begin.

Not here: the order of passes (pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.mcir.program import Program
from unistack_aot.onnx_in import Imported
from unistack_aot.packing import About, GoldenSet, Tuner
from unistack_aot.rules import RuleReport
from unistack_aot.targets.target import Constants, Progress, Scheduled

T = TypeVar("T")


class Watch(Protocol):
    """Sees the result of each named stage, and gives what goes on: the same, or a replacement."""

    def __call__(self, stage: str, value: T, /) -> T: ...


GoldenMaker = Callable[["Imported | None"], GoldenSet]


def unwatched(stage: str, value: T, /) -> T:
    """Watches nothing."""
    return value


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


NOBODY = Hooks()
"""Nobody looks on."""
