"""Compiles models at two commits and shows what differs: decisions, scheduled programs, sources.

A change that is called a refactor shows nothing. `.` stands for the working tree as it is. No tool chain is
needed: everything up to the sources is compared. Run it at the top of the repository.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator
from itertools import islice
from pathlib import Path
from time import perf_counter

# The packages of the tree in which it runs: the child that records another commit runs in that commit's tree.
sys.path.insert(0, str(Path.cwd()))

from models.catalogue import CATALOGUE, entry
from unistack_aot.base.environment import inherited
from unistack_aot.base.errors import UnistackError
from unistack_aot.lower import lower_graph
from unistack_aot.mcir.text import program_text
from unistack_aot.onnx_in import import_model
from unistack_aot.rules import apply_rules
from unistack_aot.schedule.decision import records
from unistack_aot.targets.registry import split_name
from unistack_aot.targets.target import Request
from unistack_aot.variants import signature_keys

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("cpu:x86-64-v3", "emulator:sm_90")
SHOWN = 40
"""Lines of difference shown for each file."""


def main(arguments: list[str]) -> int:
    """Exit code 0: the same, 1: something differs, 2: bad input."""
    options = _parser().parse_args(arguments)
    names = options.models or [e.name for e in CATALOGUE if e.kind == "small"]
    if options.record is not None:
        for name in names:
            record(name, options.targets, options.record)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        sides = [Path(scratch) / side for side in ("a", "b")]
        for commit, side in zip((options.a, options.b), sides, strict=True):
            with tree(commit, Path(scratch)) as root:
                _recorded(root, side, names, options.targets)
        report_times(*sides)
        return 1 if differences(*sides) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/replay.py",
        description="Show what two commits make of the same models.",
        epilog="example: scripts/replay.py main . --models resnet_small bert_small",
    )
    parser.add_argument("a", help="a commit, or . for the working tree")
    parser.add_argument("b", help="the same")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="default: all small ones")
    parser.add_argument("--targets", nargs="+", metavar="TARGET", default=TARGETS)
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    return parser


@contextlib.contextmanager
def tree(commit: str, scratch: Path) -> Generator[Path]:
    """A checkout of a commit, removed afterwards."""
    if commit == ".":
        yield ROOT
        return
    place = scratch / f"tree-{commit.replace('/', '-')}"
    _git("worktree", "add", "--detach", "--quiet", str(place), commit)
    try:
        yield place
    finally:
        _git("worktree", "remove", "--force", str(place))


def _git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True)


def _recorded(root: Path, side: Path, names: list[str], targets: list[str]) -> None:
    """Run this very script on the packages of another tree."""
    command = [sys.executable, str(Path(__file__).resolve()), "a", "b", "--record", str(side)]
    command += ["--models", *names, "--targets", *targets]
    subprocess.run(command, env=inherited({"PYTHONPATH": str(root)}), cwd=root, check=True)


def record(name: str, targets: list[str], folder: Path) -> None:
    """Write what a model becomes on each target, and how long each stage took."""
    seconds: dict[str, float] = {}
    clock = perf_counter()

    def lap(stage: str) -> None:
        nonlocal clock
        now = perf_counter()
        seconds[stage], clock = now - clock, now

    place = folder / name
    place.mkdir(parents=True)
    try:
        found = entry(name)
        model = found.load()
        sizes = {key: (min(values), max(values)) for key, values in found.dims(model).items()}
        clock = perf_counter()
        imported = import_model(model, sizes)
        lap("import")
        graph, _ = apply_rules(imported.graph, imported.origins)
        lap("rules")
        naive, constants = lower_graph(graph, imported.origins)
        lap("lower")
        for written in targets:
            target, level = split_name(written)
            request = Request(written, str(level), "f32", dict(imported.ranges.items()))
            clock = perf_counter()
            scheduled = target.schedule(naive, constants, request)
            lap(f"schedule {written}")
            dims = {dim: number for number, dim in enumerate(request.ranges)}
            keys = signature_keys(graph, scheduled.program)
            source = target.emit(scheduled.program, request, keys, dims)
            lap(f"print {written}")
            decided = records(scheduled.decisions, scheduled.program)
            to = place / written.replace(":", "-")
            to.mkdir()
            (to / "decisions.json").write_text(json.dumps(decided, indent=1))
            (to / "scheduled.mcir").write_text(program_text(scheduled.program))
            tables = (*source.buffers, *source.kernels, *source.steps)
            (to / "manifest.txt").write_text("\n".join(map(repr, tables)))
            for file, text in source.files:
                (to / f"{file}.source").write_text(text)
    except UnistackError as refusal:
        (place / "refused.txt").write_text(str(refusal))
    (folder / f"{name}.seconds").write_text(json.dumps(seconds))


def report_times(a: Path, b: Path) -> None:
    """One line of seconds for each model, before and after."""
    for path in sorted(a.glob("*.seconds")):
        before, after = (json.loads((side / path.name).read_text()) for side in (a, b))
        parts = [f"{s} {before[s]:.2f} -> {after.get(s, 0):.2f}" for s in before]
        print(f"{path.stem}: {', '.join(parts)} s")


def differences(a: Path, b: Path) -> int:
    """Show the files that differ; how many there are."""
    names = {p.relative_to(side) for side in (a, b) for p in side.rglob("*") if p.is_file()}
    found = 0
    for name in sorted(n for n in names if n.suffix != ".seconds"):
        before, after = (_lines(side / name) for side in (a, b))
        if before == after:
            continue
        found += 1
        shown = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="", n=1)
        print("\n".join(islice(shown, SHOWN)))
    print(f"{found} of {len(names)} files differ" if found else f"{len(names)} files, all the same")
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
