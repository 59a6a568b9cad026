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
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import onnx

# Run as a file, this script finds the packages beside its folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.fuzz_compiled import Pack, packs, run_compiled, smallest
from models.fuzzing import Fault, Skip, examine, minimal
from models.random_blocks import VOCABULARY
from models.random_graph import Made, generate

TARGETS = {"b": "cpu", "c": "emulator:sm_80"}


def main(arguments: list[str]) -> int:
    """Run until the time is over; 1 if a fault was found."""
    options = _parser().parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    tally: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    rounds = _evaluated(options) if options.level == "a" else _compiled(options)
    for made, outcome in rounds:
        tally[outcome] += 1
        operators.update(made.operators)
        if time.perf_counter() - begin > options.seconds:
            break
    print(f"{sum(tally.values())} models in {time.perf_counter() - begin:.0f} s: {dict(tally)}")
    print(
        f"{len(operators)} operators: {', '.join(f'{k} {n}' for k, n in operators.most_common())}"
    )
    return int(tally["fault"] > 0)


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


def _evaluated(options: argparse.Namespace) -> Iterator[tuple[Made, str]]:
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
            yield made, f"skipped: {str(reason)[:60]}"
            continue
        if fault is not None:
            _write(options.output, made, minimal(made, fault, external), fault)
        yield made, "right" if fault is None else "fault"


def _compiled(options: argparse.Namespace) -> Iterator[tuple[Made, str]]:
    target = TARGETS[options.level]
    for pack in packs(options.seed, options.pack, options.special):
        with tempfile.TemporaryDirectory() as folder:
            faults = run_compiled(pack.whole, Path(folder), target)
            yield from _judged(options, pack, faults, Path(folder), target)


def _judged(
    options: argparse.Namespace, pack: Pack, faults: dict[str, Fault], folder: Path, target: str
) -> Iterator[tuple[Made, str]]:
    wrong = {pack.part(name).seed: fault for name, fault in faults.items()}
    for made in pack.parts.values():
        fault = wrong.get(made.seed)
        if fault is not None:
            _write(options.output, made, smallest(made, folder, target), fault)
        yield made, "right" if fault is None else "fault"


def _write(folder: Path, made: Made, model: onnx.ModelProto, fault: Fault) -> None:
    """The model, and its inputs beside it."""
    path = folder / f"{fault.stage.replace(':', '_')}_{made.seed}.onnx"
    onnx.save(model, str(path))
    np.savez(str(path.with_suffix(".npz")), **made.feeds[min(fault.binding, len(made.feeds) - 1)])
    print(f"seed {made.seed}: {fault}\n  wrote {path}", flush=True)
    print(onnx.printer.to_text(model.graph), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
