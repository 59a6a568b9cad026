"""Compares predicted with measured times, kernel by kernel, on this machine's CPU.

Each model is compiled and its launches are timed one by one, many runs, the least time kept; the
predictions come from a property map. With one thread the clock counts processor time, so that a
busy machine disturbs little. `--write` puts the table into docs/cost_model.md.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

# Run as a file, this script would itself answer to the name of a package it imports.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import unistack_aot as ua
from models.catalogue import entry
from probe_suite import cpu_facts
from unistack_aot.base.errors import UnistackError
from unistack_aot.cli.face import duration
from unistack_aot.hw import propmap
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.roofline import Prediction
from unistack_aot.mcir.nodes import Attend, Contract, Fold, Kernel
from unistack_aot.mcir.program import Program
from unistack_aot.mcir.transform import walk
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime.library import run_function
from unistack_aot.runtime.session import Session
from unistack_aot.schedule.cost import microseconds, predict_program
from unistack_aot.stages import Hooks

FITTED = (
    "resnet18", "mobilenet_v2", "bert_base", "unet", "lstm", "vit_small", "gpt2_small",
)  # fmt: skip
"""Models whose kernels were looked at when the terms were chosen; all others are held out."""
HELD_OUT = ("resnet50", "whisper_tiny_encoder", "bert_small", "gru", "mobilenet_v3_large")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "cost_model.md"
FIRST, LAST = "<!-- measured: scripts/predict.py --write -->", "<!-- end of measured -->"
KINDS = ("convolution", "product", "attention", "fold", "map")


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel in one place of one model: seconds predicted and measured."""

    model: str
    launch: int
    kind: str
    label: str
    predicted: Prediction
    measured: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted.seconds / self.measured


def main(arguments: list[str]) -> int:
    """Measure, compare, print; exit code 2 for bad input."""
    options = _parser().parse_args(arguments)
    try:
        machine = Machine(propmap.load(options.map))
        rows = [row for name in options.models for row in compare(name, machine, options)]
    except UnistackError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    text = report(rows, machine, options.threads)
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(FIRST)
        after = rest.partition(LAST)[2]
        PAGE.write_text(f"{before}{FIRST}\n\n{text}\n\n{LAST}{after}", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/predict.py",
        description=(__doc__ or "").split("\n\n", maxsplit=1)[0],
        epilog="example: scripts/predict.py --map probe-out/map.json --models resnet50 bert_base",
    )
    parser.add_argument("--map", type=Path, required=True, help="this machine's property map")
    parser.add_argument("--models", nargs="+", default=(*FITTED, *HELD_OUT), metavar="NAME")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring, per model")
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    return parser


def compare(name: str, machine: Machine, options: argparse.Namespace) -> list[Row]:
    """Every distinct kernel and place of one model."""
    item = entry(name)
    model = item.load()
    kept: list[Program] = []

    def watch(stage: str, value: object, /) -> object:
        if stage.startswith("scheduled"):
            kept.append(value.program)  # type: ignore[attr-defined]
        return value

    with tempfile.TemporaryDirectory(prefix="predict-") as folder:
        package = Path(folder) / "model.pkg"
        target = f"cpu:{machine.map.arch}"
        hooks = Hooks(watch=watch)  # type: ignore[arg-type]
        compile_model(model, package, (target,), item.dims(model), hooks=hooks)
        session = ua.load(package, device="cpu", threads=options.threads)
        feeds = item.feeds()
        best = measured(session, feeds, options.threads, options.seconds)
        dims = {
            size: extent
            for tensor in session.inputs
            for size, extent in zip(tensor.shape, feeds[tensor.name].shape, strict=True)
            if not size.isdecimal()
        }
    predictions = predict_program(kept[-1], machine, dims, options.threads)
    rows: dict[tuple[Kernel, float], Row] = {}
    for number, (launch, found) in enumerate(zip(kept[-1].launches(), predictions, strict=True)):
        key = (launch.kernel, found.seconds)
        if number in best and key not in rows:
            label = launch.label or (launch.origins or ("",))[0]
            kind = kind_of(launch.kernel)
            rows[key] = Row(name, number, kind, label, found, best[number])
    total = sum(found.seconds for found in predictions)
    print(f"{name}: predicted {duration(total)}, measured {duration(sum(best.values()))}")
    return list(rows.values())


def measured(session: Session, feeds: object, threads: int, budget: float) -> dict[int, float]:
    """Least seconds of every launch, without what the call itself takes."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    empty = _overhead(session, threads)
    best: dict[int, float] = {}
    end, runs = time.perf_counter() + budget, 0
    while runs < 5 or (time.perf_counter() < end and runs < 500):
        runs += 1
        for launch in session.profile(feeds, clock):  # type: ignore[arg-type]
            seconds = launch.seconds / launch.runs
            best[launch.number] = min(best.get(launch.number, seconds), seconds)
    return {number: max(seconds - empty, 1e-8) for number, seconds in best.items()}


def _overhead(session: Session, threads: int) -> float:
    """Least seconds of a call that runs no launch."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    run = run_function(session.package, session.variant)
    table, dims = (ctypes.c_void_p * 1)(), (ctypes.c_int64 * 1)()
    found: list[float] = []
    for _ in range(1000):
        none = (ctypes.c_int32 * 1)(0)
        begin = clock()
        run(none, 0, table, dims, threads)
        found.append(clock() - begin)
    return min(found)


def kind_of(kernel: Kernel) -> str:
    """What a kernel mostly is."""
    statements = list(walk(kernel.body))
    if any(isinstance(stmt, Attend) for stmt in statements):
        return "attention"
    for stmt in statements:
        if isinstance(stmt, Contract):
            return "convolution" if len(stmt.depth) > 1 else "product"
    return "fold" if any(isinstance(stmt, Fold) for stmt in statements) else "map"


def report(rows: Sequence[Row], machine: Machine, threads: int) -> str:
    """The comparison as Markdown."""
    table: list[tuple[str, ...]] = [
        ("kind", "kernels", "rank correlation", "median error", "median predicted / measured")
    ]
    for title, fitted in (("", True), ("held out: ", False)):
        for kind in ("all", *KINDS):
            group = [row for row in rows if (row.model in FITTED) is fitted]
            chosen = [row for row in group if kind in ("all", row.kind)]
            if chosen:
                table.append(_summary(f"{title}{kind}", chosen))
    worst = sorted(rows, key=lambda row: -abs(np.log(row.ratio)))[:12]
    far: list[tuple[str, ...]] = [
        ("model", "launch", "kind", "predicted", "measured", "heaviest terms", "computes")
    ]
    far += [
        (
            row.model, str(row.launch), row.kind, microseconds(row.predicted.seconds),
            microseconds(row.measured), ", ".join(map(str, row.predicted.terms[:2])), row.label[:40],
        )
        for row in worst
    ]  # fmt: skip
    who = f"{cpu_facts.model()}, {threads} thread{'s' if threads > 1 else ''}, map `{machine.id}`"
    return f"{who}:\n\n{_markdown(table)}\n\nFarthest off:\n\n{_markdown(far)}"


def _summary(kind: str, rows: Sequence[Row]) -> tuple[str, ...]:
    errors = [abs(row.ratio - 1) for row in rows]
    predicted = [row.predicted.seconds for row in rows]
    order = rank_correlation(predicted, [row.measured for row in rows])
    middle = median(row.ratio for row in rows)
    return (kind, str(len(rows)), f"{order:.3f}", f"{100 * median(errors):.0f} %", f"{middle:.2f}")


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's coefficient; NaN for fewer than three pairs."""
    if len(a) < 3:
        return float("nan")
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _markdown(table: Sequence[tuple[str, ...]]) -> str:
    cells = [f"| {' | '.join(row)} |" for row in table]
    return "\n".join([cells[0], f"|{'---|' * len(table[0])}", *cells[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
