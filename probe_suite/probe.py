"""What a probe is: a question, the properties it yields, how it runs, how its answer is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from probe_suite.gpu.kernel import GpuKernel
from probe_suite.record import Finding, Seen, Series

Kind = Literal["cpu", "gpu"]


class NotHere(Exception):
    """This machine cannot answer the question (an instruction set it lacks); the probe is skipped
    with this reason.
    """


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe hands back: properties, curves, and instructions proven to be there."""

    findings: tuple[Finding, ...]
    series: tuple[Series, ...] = ()
    seen: tuple[Seen, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Plot:
    """How the report draws a probe's series."""

    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a probe runs: `device` ("cpu", "cuda:0", "emulator"), its architecture, a scratch
    folder, known findings.

    `known` holds what earlier probes of the run found, so that one may size its sweep by cache
    sizes; a probe must also work with an empty one.
    """

    device: str
    arch: str
    scratch: Path
    known: Mapping[str, float]
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """One question to a machine.

    `yields` names every property it may find; `kernels` are what a GPU probe compiles, so that all
    of them can be built and proven without a GPU.
    """

    name: str
    kind: Kind
    question: str
    yields: tuple[str, ...]
    run: Callable[[Setting], Answer]
    plot: Plot | None = None
    limit_s: float = 60.0
    kernels: tuple[GpuKernel, ...] = ()
