"""Searches random models for silent wrong results; each fault found is written as a small model.

Levels: a (every stage evaluated in numpy, no compiler), b (compiled for this machine's CPU), c
(compiled for the emulator).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx

# Run as a file, this script finds the packages beside its folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.fuzz_compiled import faults_of, packs, smallest
from models.fuzzing import Fault, Skip, examine, minimal
from models.random_blocks import VOCABULARY
from models.random_graph import APART, Made, generate

TARGETS = {"b": "cpu", "c": "emulator:sm_80"}


Judged = tuple[Made, str]


def main(arguments: list[str]) -> int:
    """Run whole rounds until the time is over; 1 if a fault was found."""
    options = _parser().parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    judged: list[Judged] = []
    rounds = _evaluated(options) if options.level == "a" else _compiled(options)
    with suppress(KeyboardInterrupt):  # what ran until then is reported
        for found in rounds:
            judged += found
            if time.perf_counter() - begin > options.seconds:
                break
    print(report(options.level, judged, time.perf_counter() - begin))
    return int(any(outcome == "fault" for _, outcome in judged))


def report(level: str, judged: Sequence[Judged], seconds: float) -> str:
    """What ran, which seeds, what came of it, and the operators that were met."""
    if not judged:
        return f"level {level}: no model was judged in {seconds:.0f} s"
    seeds = [made.seed % APART for made, _ in judged]  # of the first attempts
    outcomes = Counter(outcome for _, outcome in judged)
    met = Counter(name for made, _ in judged for name in made.operators)
    runs = sum(len(made.feeds) for made, _ in judged)
    what = f"level {level}: {len(judged)} models with {runs} sets of inputs"
    return "\n".join(
        (
            f"{what}, of seeds {min(seeds)} to {max(seeds)}, in {seconds:.0f} s",
            *(f"  {count:5} {outcome}" for outcome, count in outcomes.most_common()),
            f"{len(met)} operators: {', '.join(f'{k} {n}' for k, n in met.most_common())}",
        )
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz.py",
        description=__doc__,
        epilog="example: scripts/fuzz.py --seconds 600 --level a --seed 100000",
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--level", choices=("a", "b", "c"), default="a")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--pack", type=int, default=12, help="models per compilation")
    parser.add_argument("--special", action="store_true", help="NaN and infinities in the inputs")
    parser.add_argument(
        "--output", type=Path, default=Path("fuzz_faults"), help="folder for faults"
    )
    return parser


def _evaluated(options: argparse.Namespace) -> Iterator[list[Judged]]:
    """Model after model."""
    for seed in count(options.seed):
        try:
            made = generate(seed, VOCABULARY, special=options.special)
        except onnx.checker.ValidationError as error:
            print(f"seed {seed}: no valid model: {error}", file=sys.stderr)
            continue
        external = not options.special
        try:
            fault = examine(made.model, made.feeds, external=external)
        except Skip as reason:
            yield [(made, f"skipped: {str(reason)[:60]}")]
            continue
        if fault is not None:
            _write(options.output, made, minimal(made, fault, external), fault)
        yield [(made, "right" if fault is None else "fault")]


def _compiled(options: argparse.Namespace) -> Iterator[list[Judged]]:
    """Pack after pack: every model of one that was compiled is judged, whatever the time."""
    target = TARGETS[options.level]
    for pack in packs(options.seed, options.pack, options.special):
        with tempfile.TemporaryDirectory() as folder:
            faults = faults_of(pack, Path(folder), target)
            yield [
                (made, _told(options, made, faults.get(name), Path(folder), target))
                for name, made in pack.parts.items()
            ]


def _told(
    options: argparse.Namespace, made: Made, fault: Fault | None, folder: Path, target: str
) -> str:
    if fault is None:
        return "right"
    _write(options.output, made, smallest(made, folder, target), fault)
    return "fault"


def _write(folder: Path, made: Made, model: onnx.ModelProto, fault: Fault) -> None:
    """The model, and its inputs beside it."""
    path = folder / f"{fault.stage.replace(':', '_')}_{made.seed}.onnx"
    onnx.save(model, str(path))
    arrays: dict[str, Any] = {**made.feeds[min(fault.binding, len(made.feeds) - 1)]}
    np.savez(str(path.with_suffix(".npz")), **arrays)
    print(f"seed {made.seed}: {fault}\n  wrote {path}", flush=True)
    print(onnx.printer.to_text(model.graph), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
