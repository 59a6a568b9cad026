"""Compares predicted with measured times, kernel by kernel, on this machine's CPU.

Each model is compiled and its launches are timed one by one, many runs, the least time kept; the
predictions come from a property map. With one thread the clock counts processor time, so that a
busy machine disturbs little. `--keep FOLDER` keeps packages and times: each run adds to them, so
that a busy machine can be measured in slices, and predictions can change without measuring again;
`--seconds 0` measures nothing more. `--write` puts the tables into docs/cost_model.md.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median

import numpy as np
from onnx import ModelProto

# Run as a file, this script would itself answer to the name of a package it imports.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import unistack_aot as ua
from models.catalogue import entry
from models.feeds import Feeds
from models.summary import model_inputs
from probe_suite import cpu_facts
from scripts import pages
from unistack_aot.base.errors import UnistackError
from unistack_aot.cli.face import duration
from unistack_aot.hw import propmap
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.roofline import Prediction
from unistack_aot.mcir.nodes import Attend, Contract, Fold, Kernel
from unistack_aot.mcir.program import Program
from unistack_aot.mcir.text import program_text
from unistack_aot.mcir.transform import walk
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime.library import run_function
from unistack_aot.runtime.session import Session
from unistack_aot.schedule.cost import predict_program
from unistack_aot.schedule.decision import microseconds
from unistack_aot.stages import Hooks, T
from unistack_aot.targets.target import Scheduled

FITTED = (
    "resnet18", "mobilenet_v2", "bert_base", "unet", "lstm", "vit_small", "gpt2_small",
    "bert_small", "speech_small", "llama_small",
)  # fmt: skip
"""Models whose kernels were looked at when the terms were chosen; all others are held out."""
HELD_OUT = (
    "resnet50", "mobilenet_v3_large", "vit_b16", "gpt2", "llama_135m", "whisper_tiny_encoder", "gru",
    "detector",
)  # fmt: skip
FIRST, LAST = "<!-- measured: scripts/predict.py --write -->", "<!-- end of measured -->"
EMPTY = "empty"  # a call that runs no launch
LONG = 2e-6  # seconds above which cold code and the clock's own error matter less
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
        with tempfile.TemporaryDirectory(prefix="predict-") as scratch:
            bench = Bench(machine, options.keep or Path(scratch), options.seconds)
            compared = [bench.compared(name, options.threads) for name in options.models]
    except UnistackError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    text = "\n\n".join(
        report([row for rows in compared for row in rows[threads]], machine, threads)
        for threads in options.threads
    )
    print(text)
    if options.write:
        pages.put("cost_model.md", FIRST, LAST, text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/predict.py",
        description=(__doc__ or "").split("\n\n", maxsplit=1)[0],
        epilog="example: scripts/predict.py --map probe-out/map.json --models resnet50 bert_base",
    )
    parser.add_argument("--map", type=Path, required=True, help="this machine's property map")
    parser.add_argument("--models", nargs="+", default=(*FITTED, *HELD_OUT), metavar="NAME")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], metavar="N")
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring, per model")
    parser.add_argument("--keep", type=Path, help="folder of packages and times to go on with")
    parser.add_argument("--write", action="store_true", help="put the tables into the docs")
    return parser


@dataclass(frozen=True, slots=True)
class Bench:
    """A machine, a folder with a package and the least times of each model, and seconds to add to them."""

    machine: Machine
    folder: Path
    seconds: float

    def compared(self, name: str, threads: Sequence[int]) -> dict[int, list[Row]]:
        """Every distinct kernel and place of one model, by number of threads."""
        item = entry(name)
        model, feeds = item.load(), item.feeds()
        program = self.compiled(name, model, item.dims(model))
        shapes = {
            value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
            for value in model_inputs(model)
        }
        dims = {
            size: extent
            for key, shape in shapes.items()
            for size, extent in zip(shape, feeds[key].shape, strict=True)
            if isinstance(size, str)
        }
        found: dict[int, list[Row]] = {}
        for count in threads:
            best = self.times(name, feeds, count)
            predictions = predict_program(program, self.machine, dims, count)
            found[count] = rows_of(name, program, predictions, best)
            sums = (sum(p.seconds for p in predictions), sum(best.values()))
            words = " measured ".join(duration(each) for each in sums)
            print(f"{name}, {count} threads: predicted {words}", file=sys.stderr, flush=True)
        return found

    def compiled(
        self, name: str, model: ModelProto, dims: Mapping[str, tuple[int, ...]]
    ) -> Program:
        """The scheduled program; its package is built where the folder has none of that program."""
        kept: list[Program] = []
        package, said = self.folder / f"{name}.pkg", self.folder / f"{name}.sha256"

        def watch(stage: str, value: T, /) -> T:
            if isinstance(value, Scheduled):
                kept.append(value.program)
                text = sha256(program_text(kept[0]).encode()).hexdigest()
                if said.exists() and said.read_text() == text:
                    raise AlreadyBuilt
                (self.folder / f"{name}.json").unlink(missing_ok=True)
                said.write_text(text)
            return value

        target = f"cpu:{self.machine.map.arch}"
        hooks = Hooks(watch=watch)
        try:
            compile_model(model, package, (target,), dims, hooks=hooks)
        except AlreadyBuilt:
            pass
        except BaseException:
            said.unlink(missing_ok=True)
            raise
        return kept[0]

    def times(self, name: str, feeds: Feeds, threads: int) -> dict[int, float]:
        """Least seconds of every launch so far, without what the call itself takes at least."""
        place = self.folder / f"{name}.json"
        known = json.loads(place.read_text()) if place.exists() else {}
        best: dict[str, float] = known.get(str(threads), {})
        if self.seconds > 0:
            session = ua.load(self.folder / f"{name}.pkg", device="cpu", threads=threads)
            for key, seconds in measured(session, feeds, threads, self.seconds).items():
                best[key] = min(seconds, best.get(key, seconds))
            known[str(threads)] = best
            place.write_text(json.dumps(known))
        empty = best.get(EMPTY, 0.0)
        return {int(key): max(t - empty, 1e-8) for key, t in best.items() if key != EMPTY}


class AlreadyBuilt(Exception):
    """The folder has the package of this very program."""


def rows_of(
    name: str, program: Program, predictions: Sequence[Prediction], best: Mapping[int, float]
) -> list[Row]:
    """One row for each distinct kernel and prediction that was measured."""
    rows: dict[tuple[Kernel, float], Row] = {}
    for number, (launch, found) in enumerate(zip(program.launches(), predictions, strict=True)):
        key = (launch.kernel, found.seconds)
        if number in best and key not in rows:
            label = launch.label or (launch.origins or ("",))[0]
            kind = kind_of(launch.kernel)
            rows[key] = Row(name, number, kind, label, found, best[number])
    return list(rows.values())


def measured(session: Session, feeds: Feeds, threads: int, budget: float) -> dict[str, float]:
    """Least seconds of a call of every launch by its number, and of a call of none."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    best = {EMPTY: _overhead(session, threads)}
    end, runs = time.perf_counter() + budget, 0
    while runs < 5 or (time.perf_counter() < end and runs < 500):
        runs += 1
        for launch in session.profile(feeds, clock):
            key, seconds = str(launch.number), launch.seconds / launch.runs
            best[key] = min(best.get(key, seconds), seconds)
    best[EMPTY] = min(best[EMPTY], _overhead(session, threads))
    return best


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
        (
            "kind", "kernels", "rank correlation", "median error", "median predicted / measured",
            f"longer than {microseconds(LONG)}", "their median error",
        )
    ]  # fmt: skip
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
    return f"{who}:\n\n{pages.table(table)}\n\nFarthest off:\n\n{pages.table(far)}"


def _summary(kind: str, rows: Sequence[Row]) -> tuple[str, ...]:
    errors = [abs(row.ratio - 1) for row in rows]
    predicted = [row.predicted.seconds for row in rows]
    order = rank_correlation(predicted, [row.measured for row in rows])
    middle = median(row.ratio for row in rows)
    long = [error for error, row in zip(errors, rows, strict=True) if row.measured > LONG]
    whole, part = (f"{100 * median(e):.0f} %" if e else "" for e in (errors, long))
    return (kind, str(len(rows)), f"{order:.3f}", whole, f"{middle:.2f}", str(len(long)), part)


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's coefficient; NaN for fewer than three pairs."""
    if len(a) < 3:
        return float("nan")
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
