"""One model compiled for one target, and every case of it judged. Not here: records and the page."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

import unistack_aot as ua
from models.catalogue import Entry
from models.summary import model_inputs
from unistack_aot.artifact.manifest import Certificate
from unistack_aot.base.errors import UnistackError, Unsupported
from unistack_aot.base.options import DimRequest
from unistack_aot.check.verdict import OutputResult, shown
from unistack_aot.onnx_in.dims import axis_names
from unistack_aot.pipeline import Report
from unistack_aot.runtime.binding import Signature
from unistack_aot.runtime.session import Session

_SPACE = re.compile(r"\s{2,}")
State = Literal["right", "wrong", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a model became for a target: its worst error of what is allowed, time and memory.

    `seconds` are those of processors, over all cores and all levels of the target; the rest is
    about the level that runs here.
    `problem` says which outputs are wrong, what is refused, or what failed. Arena bytes are those
    of the largest case, with the lower bound that no plan can beat.
    """

    target: str
    state: State
    problem: str = ""
    kernels: int = 0
    seconds: float = 0.0
    cases: int = 0
    error: str = ""
    allowed: str = ""
    arena: int = 0
    arena_bound: int = 0
    packages: int = 1

    @property
    def share(self) -> float:
        """The worst error as a part of what is allowed."""
        return float(self.error) / (float(self.allowed) or 1.0)

    @property
    def sentence(self) -> str:
        """The verdict in a few words."""
        if self.error:
            found = f"{self.error} of {self.allowed} over {self.cases} cases"
            return f"{self.state}: {found}  {self.problem}".strip()
        return f"{self.state}: {self.problem}"


def ranges(item: Entry, model: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    """Least and greatest size of each named dimension over the cases, where they differ."""
    sizes = item.dims(model).items()
    return {n: (min(s), max(s)) for n, s in sizes if n.isidentifier() and min(s) < max(s)}


def sizes(item: Entry, model: onnx.ModelProto, cases: Sequence[str]) -> dict[str, DimRequest]:
    """The extent of each open dimension in some cases; the least and the greatest where they differ."""
    found: dict[str, set[int]] = {}
    for case in cases:
        feeds = item.feeds(case)
        for value in model_inputs(model):
            for name, size in zip(axis_names(value), feeds[value.name].shape, strict=True):
                if name is not None:
                    found.setdefault(name, set()).add(size)
    return {
        name: (min(given), max(given)) if len(given) > 1 else min(given)
        for name, given in found.items()
    }


def judged(item: Entry, proto: onnx.ModelProto, target: str, folder: Path) -> Judged:
    """Compile one model for a target and judge all its cases on the device of that name.

    Recipes keep what they leave open; files are compiled for the sizes of their cases together, and
    for each case by itself where they are refused so (branches that only fit one size).
    """
    cases = tuple(item.cases)
    try:
        if item.kind != "file":
            return _built(item, proto, ranges(item, proto), cases, target, folder)
        try:
            return _built(item, proto, sizes(item, proto, cases), cases, target, folder)
        except Unsupported:
            if len(cases) == 1:
                raise
        return _joined(
            [
                _built(item, proto, sizes(item, proto, (case,)), (case,), target, folder)
                for case in cases
            ]
        )
    except Unsupported as refusal:
        return Judged(target, "refused", _SPACE.sub("; ", refusal.what.split("\n")[-1].strip()))
    except UnistackError as error:
        return Judged(target, "failed", error.what.split("\n")[0])


def _joined(parts: Sequence[Judged]) -> Judged:
    """One verdict on several packages: the worst error, the most memory, the time of all."""
    worst = max(parts, key=lambda part: (part.state == "wrong", part.share))
    most = max(parts, key=lambda part: part.arena)
    return replace(
        worst,
        problem=", ".join(part.problem for part in parts if part.problem),
        kernels=max(part.kernels for part in parts),
        seconds=round(sum(part.seconds for part in parts), 1),
        cases=sum(part.cases for part in parts),
        arena=most.arena,
        arena_bound=most.arena_bound,
        packages=len(parts),
    )


def _processor_seconds() -> float:
    """What this process and the compilers it started have used: other work does not count."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _built(
    item: Entry,
    proto: onnx.ModelProto,
    dims: Mapping[str, DimRequest],
    cases: Sequence[str],
    target: str,
    folder: Path,
) -> Judged:
    model, package = folder / f"{item.name}.onnx", folder / f"{item.name}.pkg"
    onnx.save(proto, str(model))
    start = _processor_seconds()
    report = ua.compile_model(model, package, targets=(target,), dims=dims)
    seconds = _processor_seconds() - start
    return _run(item, cases, report, seconds, (model, package))


def _run(
    item: Entry, cases: Sequence[str], report: Report, seconds: float, files: tuple[Path, Path]
) -> Judged:
    model, package = files
    device = report.variants[0].target.partition(":")[0]
    session = ua.load(package, device=device)
    built = next(each for each in report.variants if each.target == session.variant.target)
    results: list[OutputResult] = []
    problems: list[str] = []
    for case in cases:
        verdict = ua.check(model, package, device, feeds=item.feeds(case), bisect=False)
        results += verdict.results
        problems += [f"{case}: {r.output}" for r in verdict.results if not r.passed]
    problems += [f"self-test: {each.output}" for each in session.selftest() if not each.passed]
    worst = max(results, key=lambda r: (not r.passed, r.error / (r.allowed or 1.0)))
    peak, bound = _arena(item, cases, session)
    return Judged(
        built.target,
        "wrong" if problems else "right",
        ", ".join(problems),
        built.kernels,
        round(seconds, 1),
        len(cases),
        shown(worst.error),
        shown(worst.allowed),
        peak,
        bound,
    )


def _arena(item: Entry, cases: Sequence[str], session: Session) -> tuple[int, int]:
    """Peak bytes of the largest case, and the least that any plan needs there."""
    signature = Signature(session.package.manifest, lambda value, _: np.asarray(value))
    plans: list[Certificate] = []
    for case in cases:
        feeds = item.feeds(case)
        dims = signature.bind([feeds[each.name].shape for each in signature.inputs])
        plans.append(session.plan(dims))
    largest = max(plans, key=lambda plan: plan.peak)
    return largest.peak, largest.lower_bound
