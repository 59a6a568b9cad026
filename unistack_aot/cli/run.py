"""`unistack-aot run PACKAGE`: outputs for arrays, the self-test, a timing. Needs no compiler."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from unistack_aot.base.errors import BadInput
from unistack_aot.base.options import parse_dim
from unistack_aot.cli.counters import present_counters, start_counting
from unistack_aot.cli.face import Face, duration, size
from unistack_aot.cli.inputs import invented_feeds, named_files, read_feeds
from unistack_aot.runtime.session import Session, load

EXAMPLE = "unistack-aot run bert.pkg --input ids=ids.npy --input mask=mask.npy --output results"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("package", type=Path, help="the package")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help=".npy file of one input, or one .npz with all (default: a recorded or random run)",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="write NAME.npy files there")
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda:0, emulator")
    parser.add_argument("--threads", type=int, help="CPU threads (default: one per core)")
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE", help="size of invented inputs"
    )
    parser.add_argument("--seed", type=int, default=0, help="of invented inputs")
    parser.add_argument("--time", action="store_true", help="say how long a run takes")
    parser.add_argument("--repeat", type=int, metavar="N", help="runs to time (default: 20)")
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    parser.add_argument(
        "--counters", action="store_true", help="on the emulator: count memory traffic by kernel"
    )
    parser.add_argument("--selftest", action="store_true", help="replay the recorded runs")


def run(options: argparse.Namespace, face: Face) -> int:
    """Run; 1 if the self-test fails."""
    if options.repeat is not None and options.repeat < 1:
        raise BadInput(f"--repeat {options.repeat}", hint="give 1 or more")
    if options.output and options.output.exists() and not options.output.is_dir():
        raise BadInput(f"{options.output} is not a folder", hint="--output takes a folder")
    counting = start_counting(options.device) if options.counters else None
    session = load(options.package, options.device, options.threads)
    face.say(f"{options.package}  on {session.device}  ({session.device_reason})")
    face.fact(package=str(options.package), device=session.device, variant=session.variant.target)
    if options.selftest:
        return _selftest(session, face)
    dims = {name: each.low for name, each in map(parse_dim, options.dim)}
    if options.input:
        feeds = read_feeds(named_files(options.input), session.inputs)
    else:
        feeds = invented_feeds(session.package, dims, options.seed)
        face.say(
            "  no --input: a recorded run"
            if session.package.manifest.golden and not dims
            else "  no --input: random numbers"
        )
    outputs = session.run(feeds)
    _present(outputs, face)
    if counting is not None:
        present_counters(counting, session, face)
    if options.output:
        _write(outputs, options.output, face)
    if options.time or options.repeat:
        _timed(session, feeds, options.repeat or 20, face)
    if options.profile:
        _profiled(session, feeds, face)
    return 0


def _present(outputs: Mapping[str, np.ndarray[Any, Any]], face: Face) -> None:
    rows: list[tuple[object, ...]] = []
    for name, array in outputs.items():
        wide = array.astype(np.float64)
        spread = f"min {wide.min():.4g}  mean {wide.mean():.4g}  max {wide.max():.4g}"
        rows.append((name, f"{array.dtype}{list(array.shape)}", spread if array.size else "empty"))
    face.table(rows)
    face.fact(
        outputs={n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in outputs.items()}
    )


def _write(outputs: Mapping[str, np.ndarray[Any, Any]], folder: Path, face: Face) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in outputs.items():
        file = folder / f"{name.strip('/').replace('/', '_')}.npy"
        np.save(file, array)
        face.say(f"wrote {file}  {size(array.nbytes)}")


def _timed(session: Session, feeds: Mapping[str, object], repeat: int, face: Face) -> None:
    seconds: list[float] = []
    for _ in range(repeat):
        start = perf_counter()
        session.run(feeds)
        seconds.append(perf_counter() - start)
    face.say(
        f"  {repeat} runs: median {duration(median(seconds))}, best {duration(min(seconds))}, "
        f"worst {duration(max(seconds))}"
    )
    face.fact(seconds={"median": median(seconds), "best": min(seconds), "worst": max(seconds)})


def _profiled(session: Session, feeds: Mapping[str, object], face: Face) -> None:
    times = sorted(session.profile(feeds), key=lambda t: -t.seconds)
    total = sum(each.seconds for each in times) or 1.0
    rows: list[tuple[object, ...]] = [("launch", "kernel", "time", "share", "computes")]
    rows += [
        (
            each.number,
            each.kernel.symbol,
            duration(each.seconds),
            f"{100 * each.seconds / total:.1f} %",
            ", ".join(each.kernel.origins[:3]) or "-",
        )
        for each in times[:20]
    ]
    face.table(rows, right="rlrrl")
    face.fact(
        profile=[
            {"launch": t.number, "kernel": t.kernel.symbol, "runs": t.runs, "seconds": t.seconds}
            for t in times
        ]
    )


def _selftest(session: Session, face: Face) -> int:
    verdicts = session.selftest()
    if not verdicts:
        raise BadInput(
            "the package carries no recorded run",
            at=session.package.path,
            hint="compile without --no-golden, or use: unistack-aot check MODEL PACKAGE",
        )
    face.table(
        [("run", "output", "of tolerance", "")]
        + [
            (v.golden, v.output, f"{100 * v.worst:.1f} %", "ok" if v.passed else "WRONG")
            for v in verdicts
        ]
    )
    good = all(v.passed for v in verdicts)
    face.say("good" if good else "wrong")
    face.fact(passed=good, outputs={f"{v.golden}/{v.output}": v.worst for v in verdicts})
    return 0 if good else 1
