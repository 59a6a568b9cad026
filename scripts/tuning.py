"""Compares tuning with exhaustive search on small spaces: how good a tenth of the trials is.

Every space is the ways of one contraction. Exhaustive search measures all of them in place; tuning
measures the best predicted tenth (the usual way among them). The loss is how much longer tuning's
best takes than the exhaustive one's, by the exhaustive search's own times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Run as a file, this script would itself answer to the name of a package it imports.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from unistack_aot.check.compile import Tuning, compile_model, tuner
from unistack_aot.cli.face import columns
from unistack_aot.hw.catalogue import find_map
from unistack_aot.schedule.cost import microseconds
from unistack_aot.stages import Hooks
from unistack_aot.tune.database import Database, Entry
from unistack_aot.tune.search import best_way

SHARE = 10  # one trial in so many


@dataclass(frozen=True, slots=True)
class Space:
    """A matrix product with constant weights."""

    name: str
    rows: int
    cols: int
    depth: int

    def model(self) -> onnx.ModelProto:
        """One node with seeded weights."""
        weight = np.random.default_rng(1).standard_normal((self.depth, self.cols))
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"], self.name)],
            self.name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [self.rows, self.depth])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [self.rows, self.cols])],
            [numpy_helper.from_array(weight.astype(np.float32), "w")],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


SPACES = (
    Space("project", 128, 768, 768),
    Space("widen", 128, 3072, 768),
    Space("narrow", 128, 768, 3072),
    Space("square", 512, 512, 512),
    Space("short", 16, 1024, 1024),
)


def main(arguments: list[str]) -> int:
    """Measure every named space and print the comparison."""
    options = _parser().parse_args(arguments)
    rows = [("space", "ways", "trials", "usual", "tuned", "exhaustive", "loss")]
    losses: list[float] = []
    for space in SPACES:
        if options.spaces and space.name not in options.spaces:
            continue
        entry = searched(space, options)
        row, loss = compared(space.name, entry)
        losses.append(loss)
        rows.append(row)
        print("  ".join(row), file=sys.stderr, flush=True)
    for line in columns(rows, right="lrrrrrr"):
        print(line)
    print(f"median loss {median(losses):.1%}, worst {max(losses):.1%}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/tuning.py", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("spaces", nargs="*", metavar="NAME", help=", ".join(s.name for s in SPACES))
    parser.add_argument("--map", required=True, help="this machine's property map")
    parser.add_argument("--level", default="x86-64-v3", help="instruction set level")
    parser.add_argument("--seconds", type=float, default=600.0, help="per space, at most")
    parser.add_argument("--keep", type=Path, help="folder of measured times to go on with")
    return parser


def searched(space: Space, options: argparse.Namespace) -> Entry:
    """The space's entry with all its ways measured, as far as the time goes."""
    with tempfile.TemporaryDirectory(prefix="tuning-") as scratch:
        folder = (options.keep or Path(scratch)) / space.name
        search = tuner(Tuning(options.seconds, folder), space.model(), few=1 << 20)
        compile_model(
            space.model(),
            Path(scratch) / "m.pkg",
            (f"cpu:{options.level}",),
            golden=False,
            hooks=Hooks(tuner=search),
            maps=[find_map(options.map)] if options.map else (),
        )
        (path,) = sorted(folder.rglob("*.json"))
        found = Database(folder).read(path.stem)
        assert found is not None
        return found


def compared(name: str, entry: Entry) -> tuple[tuple[str, ...], float]:
    """One row, and the loss of tuning against exhaustive search."""
    ranked = sorted(entry.predicted.keys() - {entry.usual}, key=lambda w: (entry.predicted[w], w))
    few = max(1, len(entry.predicted) // SHARE)
    tried = [way for way in (entry.usual, *ranked[: few - 1]) if way in entry.measured]
    part = Entry(entry.subject, entry.usual, entry.predicted, {w: entry.measured[w] for w in tried})
    tuned = entry.measured[best_way(part)]
    exhaustive = min(entry.measured.values())
    loss = tuned / exhaustive - 1.0
    shown: Sequence[float] = (entry.measured[entry.usual], tuned, exhaustive)
    times = tuple(microseconds(seconds) for seconds in shown)
    ways = f"{len(entry.measured)} of {len(entry.predicted)}"
    return (name, ways, str(len(tried)), *times, f"{loss:.1%}"), loss


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
