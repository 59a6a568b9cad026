"""Compares tuning with exhaustive search on small spaces: how good a tenth of the trials is.

Every space is the ways of one kernel: a matrix product, a convolution, an attention. All of them are
built, then measured in turns, each several times in every round, and the least time of a way counts.
Tuning is replayed over these times: it sees only those of the ways that it asks for. The least of
many times is too small by luck, so the finalists (the usual way, tuning's and the fastest few of all)
are measured once more, in turns; only these times make the loss: how much longer tuning's way takes
than the fastest finalist.

`--keep FOLDER` keeps what was built and measured: every run adds rounds, so that a busy machine can
be measured in slices. `--build` stops before measuring. `--write` puts the table into docs/cost_model.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from math import sqrt
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

# Run as a file, this script would itself answer to the name of a package it imports.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from probe_suite import cpu_facts
from scripts import pages
from unistack_aot.base.environment import environment
from unistack_aot.check.compile import compile_model
from unistack_aot.cli.face import columns
from unistack_aot.hw.catalogue import find_map
from unistack_aot.packing import Builder, Trial, Tuned
from unistack_aot.runtime.session import Session, load
from unistack_aot.schedule.choices import Pick
from unistack_aot.schedule.decision import microseconds
from unistack_aot.stages import Hooks
from unistack_aot.targets.target import Request, Target
from unistack_aot.tune.database import Entry
from unistack_aot.tune.proposals import Space, next_way
from unistack_aot.tune.search import best_way

SHARE = 10  # one trial in so many
TURNS = 3  # runs of a way in one round
FINALISTS = 4  # the fastest of all that are measured again
FIRST, LAST = "<!-- tuned: scripts/tuning.py --write -->", "<!-- end of tuned -->"
Make = Callable[[], onnx.ModelProto]


# --- spaces -----------------------------------------------------------------------------------------


def product(rows: int, cols: int, depth: int) -> Make:
    """A matrix product with constant weights."""
    return lambda: _model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        {"x": (rows, depth)},
        (rows, cols),
        {"w": (depth, cols)},
    )


def convolution(size: int, channels: int, filters: int, taps: int, stride: int) -> Make:
    """A convolution over a square image."""
    pads, side = [taps // 2] * 4, size // stride
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=pads, strides=[stride, stride])
    return lambda: _model(
        [node],
        {"x": (1, channels, size, size)},
        (1, filters, side, side),
        {"w": (filters, channels, taps, taps)},
    )


def attention(heads: int, rows: int, keys: int, depth: int) -> Make:
    """softmax(q k' / sqrt(depth)) v."""
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["dot"], "scores"),
        helper.make_node("Mul", ["dot", "scale"], ["scaled"], "scale_scores"),
        helper.make_node("Softmax", ["scaled"], ["weights"], "softmax", axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"], "mix"),
    ]
    transposed = helper.make_node("Transpose", ["kt"], ["k"], "turn", perm=[0, 1, 3, 2])
    scale = numpy_helper.from_array(np.asarray(1 / sqrt(depth), np.float32), "scale")
    shapes = {name: (1, heads, n, depth) for name, n in (("q", rows), ("kt", keys), ("v", keys))}
    return lambda: _model([transposed, *nodes], shapes, (1, heads, rows, depth), {}, (scale,))


def _model(
    nodes: list[NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    output: tuple[int, ...],
    weights: Mapping[str, tuple[int, ...]],
    constants: tuple[TensorProto, ...] = (),
) -> onnx.ModelProto:
    draw = np.random.default_rng(1).standard_normal
    drawn = [
        numpy_helper.from_array(draw(shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    graph = helper.make_graph(
        nodes,
        "space",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [*drawn, *constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


SPACES: Mapping[str, Make] = {
    "project": product(128, 768, 768),
    "widen": product(128, 3072, 768),
    "narrow": product(128, 768, 3072),
    "square": product(512, 512, 512),
    "short": product(16, 1024, 1024),
    "conv3x3": convolution(28, 128, 128, 3, 1),
    "conv3x3s2": convolution(56, 64, 128, 3, 2),
    "conv5x5": convolution(14, 128, 192, 5, 1),
    "heads197": attention(12, 197, 197, 64),
    "heads1024": attention(4, 1024, 1024, 64),
}


# --- all ways of a space ----------------------------------------------------------------------------


@dataclass
class Measured:
    """A space on disk: its ways with predictions and places, packages, and the times of every round."""

    usual: str
    predicted: dict[str, float]
    places: dict[str, tuple[float, ...]]
    launches: dict[str, list[int]]
    rounds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    finals: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def space(self) -> Space:
        """What a search knows before it measures."""
        return Space(self.usual, self.predicted, self.places)

    def least(self) -> dict[str, float]:
        """The least time of every way."""
        return {way: min(times) for way, times in self.rounds.items()}

    def noise(self) -> float:
        """How far the least times of the odd and the even rounds lie apart, half of the ways no further."""
        halves = [(t[::2], t[1::2]) for t in self.rounds.values() if len(t) > 1]
        apart = [abs(min(a) - min(b)) / min(*a, *b) for a, b in halves]
        return median(apart) if apart else float("nan")


@dataclass(frozen=True, slots=True)
class BuildAll:
    """Takes the place of a tuner: builds a package of every way, and lists them."""

    folder: Path
    kept: list[Measured] = field(default_factory=list[Measured])

    def __call__(self, target: Target, request: Request, build: Builder) -> Tuned:
        """The request as it is."""
        whole = replace(request, whole=True)
        trial = build(whole, self.folder / "usual.pkg")
        (choice,) = [each for each in trial.choices if trial.launches[each.key]]
        found = Measured(choice.usual, dict(choice.ways), dict(choice.places), {})
        for number, way in enumerate(found.predicted):
            picks = {choice.key: Pick(way, on_trial=True)}
            made: Trial = build(replace(request, picks=picks), package_of(self.folder, way))
            found.launches[way] = [n for group in made.launches[choice.key] for n in group]
            print(f"\r{self.folder.name}: built {number + 1} of {len(found.predicted)} ways",
                  end="", file=sys.stderr, flush=True)  # fmt: skip
        print(file=sys.stderr)
        self.kept.append(found)
        return Tuned(request, "")


def package_of(folder: Path, way: str) -> Path:
    """Where the package of a way lies."""
    return folder / f"{sha256(way.encode()).hexdigest()[:16]}.pkg"


def built(name: str, folder: Path, map_id: str) -> Measured:
    """The space with a package of each way, from the folder if it is there."""
    known = folder / "space.json"
    if known.exists():
        fields = json.loads(known.read_text(encoding="utf-8"))
        return Measured(**fields)
    folder.mkdir(parents=True, exist_ok=True)
    hardware = find_map(map_id)
    build_all = BuildAll(folder)
    compile_model(
        SPACES[name](),
        folder / "usual.pkg",
        (f"cpu:{hardware.arch}",),
        golden=False,
        hooks=Hooks(tuner=build_all),
        maps=[hardware],
    )
    found = build_all.kept[0]
    keep(found, folder)
    return found


def keep(found: Measured, folder: Path) -> None:
    """Write the space as JSON."""
    (folder / "space.json").write_text(json.dumps(asdict(found), indent=1), encoding="utf-8")


# --- times ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Runner:
    """One way, loaded and ready."""

    session: Session
    feeds: Mapping[str, object]
    launches: frozenset[int]

    def seconds(self) -> float:
        """The least time of some runs."""
        return min(self._once() for _ in range(TURNS))

    def _once(self) -> float:
        launches = self.session.profile(self.feeds)
        return sum(each.seconds for each in launches if each.number in self.launches)


def runner(found: Measured, way: str, folder: Path, threads: int) -> Runner:
    """The way's package, loaded, with random inputs."""
    session = load(package_of(folder, way), "cpu", threads)
    rng = np.random.default_rng(0)
    feeds = {
        each.name: rng.standard_normal([int(n) for n in each.shape]).astype(np.float32)
        for each in session.inputs
    }
    return Runner(session, feeds, frozenset(found.launches[way]))


def rounds(runners: Mapping[str, Runner], into: dict[str, list[float]], seconds: float) -> None:
    """Measure all in turns, at least twice, until the time is over."""
    end, done = time.perf_counter() + seconds, 0
    while done < 2 or time.perf_counter() < end:
        done += 1
        for way, each in runners.items():
            into.setdefault(way, []).append(each.seconds())


def replayed(found: Measured) -> list[str]:
    """The ways that tuning measures with a tenth of the trials, in its order."""
    times, few = found.least(), max(1, len(found.predicted) // SHARE)
    tried: dict[str, float] = {}
    while len(tried) < few:
        way = next_way(found.space(), tried)
        assert way is not None
        tried[way] = times[way]
    return list(tried)


def best_of(found: Measured, tried: Iterable[str]) -> str:
    """What tuning takes once it measured these."""
    times = found.least()
    return best_way(Entry("", found.usual, found.predicted, {way: times[way] for way in tried}))


def finalists(found: Measured) -> list[str]:
    """The usual way, tuning's, and the fastest of all."""
    times = found.least()
    fastest = sorted(times, key=lambda way: times[way])[:FINALISTS]
    return list(dict.fromkeys((found.usual, best_of(found, replayed(found)), *fastest)))


def measure(found: Measured, folder: Path, threads: int, seconds: float) -> None:
    """Half of the time for all ways, half for the finalists."""
    everyone = {way: runner(found, way, folder, threads) for way in found.predicted}
    rounds(everyone, found.rounds, seconds / 2)
    last = {way: everyone[way] for way in finalists(found)}
    found.finals = {way: times for way, times in found.finals.items() if way in last}
    rounds(last, found.finals, seconds / 2)
    keep(found, folder)


# --- the table --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One space compared."""

    name: str
    ways: int
    trials: int
    usual: float
    tuned: float
    fastest: float
    noise: float

    @property
    def loss(self) -> float:
        """How much longer tuning's way takes than the fastest."""
        return self.tuned / self.fastest - 1

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        times = (microseconds(each) for each in (self.usual, self.tuned, self.fastest))
        return (
            self.name, str(self.ways), str(self.trials), *times,
            f"{self.loss:.1%}", f"{self.usual / self.fastest - 1:.1%}", f"{self.noise:.1%}",
        )  # fmt: skip


HEAD = ("space", "ways", "trials", "usual", "tuned", "exhaustive", "loss", "loss of usual", "noise")


def compared(name: str, found: Measured) -> Row:
    """Tuning against the fastest finalist, by the finals' times."""
    tried = replayed(found)
    times = {way: min(each) for way, each in found.finals.items()}
    tuned = times[best_of(found, tried)]
    usual, fastest = times[found.usual], min(times.values())
    return Row(name, len(found.predicted), len(tried), usual, tuned, fastest, found.noise())


def main(arguments: list[str]) -> int:
    """Build, measure and compare every named space."""
    options = _parser().parse_args(arguments)
    machine, threads = find_map(options.map), environment().threads
    with tempfile.TemporaryDirectory(prefix="tuning-") as scratch:
        kept = options.keep or Path(scratch)
        found: list[tuple[str, Measured]] = []
        for name in options.spaces or SPACES:
            space = built(name, kept / name, options.map)
            if not options.build and options.seconds > 0:
                measure(space, kept / name, threads, options.seconds)
            found.append((name, space))
    if options.build:
        return 0
    rows = [compared(name, space) for name, space in found]
    cells = [HEAD, *(row.cells() for row in rows)]
    for line in columns(cells, right="l" + "r" * (len(HEAD) - 1)):
        print(line)
    losses = [row.loss for row in rows]
    summary = f"median loss {median(losses):.1%}, worst {max(losses):.1%}"
    print(summary)
    if options.write:
        who = f"{cpu_facts.model()}, {threads} threads, map `{machine.id}`: {summary}."
        pages.put("cost_model.md", FIRST, LAST, f"{who}\n\n{pages.table(cells)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/tuning.py", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("spaces", nargs="*", metavar="NAME", help=", ".join(SPACES))
    parser.add_argument("--map", required=True, help="this machine's property map")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of measuring, per space; 0: none more"
    )
    parser.add_argument("--keep", type=Path, help="folder of packages and times to go on with")
    parser.add_argument("--build", action="store_true", help="build only; measure later")
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
