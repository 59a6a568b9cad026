"""Compiles models of the catalogue, judges every case, and writes the table of results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

import unistack_aot as ua
from models.catalogue import Entry
from unistack_aot.base.errors import UnistackError
from unistack_aot.check.verdict import OutputResult, shown


@dataclass(frozen=True, slots=True)
class Row:
    """One model: what it became, and its worst result; `problem` where it came to nothing."""

    name: str
    kind: str
    good: bool
    nodes: int = 0
    kernels: int = 0
    seconds: float = 0.0
    cases: int = 0
    worst: OutputResult | None = None
    problem: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        if self.worst is None:
            return (self.name, self.kind, "", "", "", "", "", f"no: {self.problem}")
        error = f"{shown(self.worst.error)} of {shown(self.worst.allowed)}"
        answer = "yes" if self.good else f"NO: {self.problem}"
        numbers = (self.nodes, self.kernels, f"{self.seconds:.0f} s", self.cases)
        return (self.name, self.kind, *map(str, numbers), error, answer)


def checked(item: Entry, target: str, device: str, folder: Path) -> Row:
    """Compile one model for a target and judge all its cases on a device; prints one line."""
    start = time.perf_counter()
    try:
        row = _judged(item, target, device, folder)
    except UnistackError as error:
        row = Row(item.name, item.kind, False, problem=error.what.split("\n")[0])
    seconds = time.perf_counter() - start
    print(f"{'  '.join(row.cells)}  ({seconds:.0f} s in all)", flush=True)
    return row


def ranges(item: Entry, model: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    """Least and greatest size of each named dimension over the cases, where they differ."""
    sizes = item.dims(model).items()
    return {n: (min(s), max(s)) for n, s in sizes if n.isidentifier() and min(s) < max(s)}


def _judged(item: Entry, target: str, device: str, folder: Path) -> Row:
    model = folder / f"{item.name}.onnx"
    package = folder / f"{item.name}.pkg"
    proto = item.load()
    onnx.save(proto, str(model))
    start = time.perf_counter()
    report = ua.compile_model(model, package, targets=(target,), dims=ranges(item, proto))
    seconds = time.perf_counter() - start
    results: list[OutputResult] = []
    problems: list[str] = []
    for case in item.cases:
        verdict = ua.check(model, package, device, feeds=item.feeds(case), bisect=False)
        results += verdict.results
        problems += [f"{case}: {r.output}" for r in verdict.results if not r.passed]
    problems += [
        f"self-test: {each.output}"
        for each in ua.load(package, device=device).selftest()
        if not each.passed
    ]
    worst = max(results, key=lambda r: (not r.passed, r.error / (r.allowed or 1.0)))
    return Row(
        item.name,
        item.kind,
        not problems,
        report.onnx_nodes,
        report.variants[0].kernels,
        seconds,
        len(item.cases),
        worst,
        ", ".join(problems),
    )


def markdown(rows: Sequence[Row], target: str) -> str:
    """The table as a page."""
    good = sum(row.good for row in rows)
    lines = [
        f"# Models on {target}",
        "",
        (
            f"{good} of {len(rows)} models compute what they mean. Errors are in ulp-scaled units "
            "against what is allowed (docs/cli.md); written by `scripts/models.py check`."
        ),
        "",
        "| model | kind | ONNX nodes | kernels | compiled in | cases | worst error | right |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row.cells)} |" for row in rows]
    return "\n".join(lines) + "\n"
