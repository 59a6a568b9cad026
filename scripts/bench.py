"""Compares speed on the CPU: this compiler, onnxruntime and OpenVINO, interleaved in one process.

Blocks of a few runs take turns, so that all systems see the same machine; medians and best times
are shown, with GFLOP/s and the fraction of the multiply-add peak that the same run measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy
import onnx
import onnxruntime

# Run as a file, this script would itself answer to the name of a package it imports.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import unistack_aot as ua
from models.catalogue import Entry, entry
from models.feeds import Feeds
from probe_suite import cpu_facts
from probe_suite.probe import Setting
from probe_suite.probes import cpu_fma
from unistack_aot.base.errors import UnistackError
from unistack_aot.check.oracles import bound
from unistack_aot.check.tolerance import roundings
from unistack_aot.cli.face import columns, duration
from unistack_aot.onnx_in import import_model
from unistack_aot.targets.cpu.build import LEVELS, compiler

try:
    import openvino
except ImportError:
    openvino = None

BLOCK = 5
PAUSE_S = 0.02  # lets the threads of the system before go to sleep
DEFAULT = ("resnet18", "mobilenet_v2", "bert_base")
Run = Callable[[Feeds], object]


@dataclass
class System:
    """One contestant: how it runs, or why it does not, and the seconds of each run."""

    name: str
    run: Run | None
    remark: str = ""
    seconds: list[float] = field(default_factory=list)


def main(arguments: list[str]) -> int:
    """Measure every named model; exit code 2 for bad input."""
    options = _parser().parse_args(arguments)
    try:
        peak, results = 0.0, list[dict[str, Any]]()
        for name in options.models:
            # Two processors of a virtual machine may be one core for minutes: the highest of several peaks counts.
            peak = max(peak, measured_peak(options.threads))
            print(f"multiply-add peak: {peak / 1e9:.1f} GFLOP/s on {options.threads} threads")
            results.append(bench(entry(name), options, peak))
        peak = max(peak, measured_peak(options.threads))
    except UnistackError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if options.json:
        options.json.write_text(json.dumps({"peak": peak, "models": results}, indent=2) + "\n")
    if options.markdown:
        command = shlex.join(["scripts/bench.py", *arguments])
        options.markdown.write_text(page(results, peak, options.threads, command))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench.py",
        description=(__doc__ or "").split("\n\n", maxsplit=1)[0],
        epilog="example: scripts/bench.py --models resnet50 bert_base --threads 2",
    )
    parser.add_argument("--models", nargs="+", default=DEFAULT, metavar="NAME")
    parser.add_argument("--threads", type=int, default=cpu_facts.cores())
    parser.add_argument("--case", help="inputs of the catalogue (default: the usual ones)")
    parser.add_argument("--seconds", type=float, default=10.0, help="per model, all systems")
    parser.add_argument(
        "--packages", type=Path, help="folder to keep packages in, and take them from"
    )
    parser.add_argument(
        "--target",
        nargs="+",
        default=("cpu",),
        metavar="TARGET",
        help="what to build: cpu:x86-64-v3",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write them there as a page")
    return parser


def bench(item: Entry, options: argparse.Namespace, peak: float) -> dict[str, Any]:
    """Measure one model and print its table."""
    model = item.load()
    feeds = item.feeds(options.case)
    work = operations(model, feeds)
    print(f"\n{item.name}: {work / 1e9:.2f} GFLOP, {options.threads} threads")
    systems = [
        _ours(item.name, model, options),
        _onnxruntime(model, options.threads),
        _openvino(model, feeds, options.threads),
    ]
    _race([s for s in systems if s.run is not None], feeds, options.seconds)
    _print(systems, work, peak)
    return {
        "model": item.name,
        "flop": work,
        "systems": {
            s.name: {"median": median(s.seconds), "best": min(s.seconds), "runs": len(s.seconds)}
            for s in systems
            if s.seconds
        },
    }


def _ours(name: str, model: onnx.ModelProto, options: argparse.Namespace) -> System:
    folder = options.packages or Path(tempfile.mkdtemp(prefix="bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / f"{name}.pkg"
    if not package.exists():
        start = time.perf_counter()
        ua.compile_model(model, package, targets=tuple(options.target), golden=False)
        print(f"  compiled in {time.perf_counter() - start:.0f} s")
    session = ua.load(package, device="cpu", threads=options.threads)
    return System("unistack_aot", session.run)


def _onnxruntime(model: onnx.ModelProto, threads: int) -> System:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    return System(f"onnxruntime {onnxruntime.__version__}", lambda feeds: session.run(None, feeds))


def _openvino(model: onnx.ModelProto, feeds: Feeds, threads: int) -> System:
    if openvino is None:
        return System("openvino", None, "absent: pip install openvino")
    core = openvino.Core()
    try:
        read = core.read_model(model.SerializeToString())
        read.reshape({name: list(array.shape) for name, array in feeds.items()})
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
        compiled = core.compile_model(read, "CPU", {**settings, "INFERENCE_PRECISION_HINT": "f32"})
    except RuntimeError as refusal:
        return System("openvino", None, f"refuses the model: {str(refusal).splitlines()[0][:80]}")
    request = compiled.create_infer_request()
    version = openvino.__version__.split("-")[0]
    return System(f"openvino {version}", lambda given: request.infer(given, share_inputs=True))


def _race(systems: list[System], feeds: Feeds, budget: float) -> None:
    for system in systems:  # the first run plans memory and fills caches
        assert system.run is not None
        system.run(feeds)
        system.run(feeds)
    end = time.perf_counter() + budget
    while time.perf_counter() < end or not systems[0].seconds:
        for system in systems:
            assert system.run is not None
            time.sleep(PAUSE_S)
            system.run(feeds)
            for _ in range(BLOCK):
                start = time.perf_counter()
                system.run(feeds)
                system.seconds.append(time.perf_counter() - start)


def _print(systems: list[System], work: float, peak: float) -> None:
    ours = median(systems[0].seconds)
    rows = [("", "median", "best", "runs", "GFLOP/s", "of peak", "ours is")]
    for system in systems:
        if not system.seconds:
            rows.append((system.name, system.remark, "", "", "", "", ""))
            continue
        middle = median(system.seconds)
        rate = work / middle
        rows.append(
            (
                system.name,
                duration(middle),
                duration(min(system.seconds)),
                str(len(system.seconds)),
                f"{rate / 1e9:.1f}",
                f"{100 * rate / peak:.0f} %",
                "" if system is systems[0] else f"{middle / ours:.2f} x as fast",
            )
        )
    for line in columns(rows, right="lrrrrrl"):
        print(f"  {line}")


TEXT = """# Speed on a CPU

Written by `scripts/bench.py --markdown` on {date}, on {machine} that had
nothing else to do. Every figure was measured in this one run:

```sh
{command}
```

| what | version |
|---|---|
{versions}

All systems run f32 on {threads} threads and take turns in blocks of {block} runs, so that they see the same
machine. A median is over all runs of a system. `ours is` is the other system's median over ours: above 1, this
compiler is faster. The same run measured the multiply-add peak: {peak:.1f} GFLOP/s on {threads} threads, from
independent multiply-adds in registers, the highest of one measurement per model. GFLOP count the multiplications and
additions of contractions as the model defines them: convolutions by fewer products do less, and what recurrences sum
at each step is not counted.

| model | GFLOP | system | median ms | best ms | runs | GFLOP/s | of peak | ours is |
|---|---|---|---|---|---|---|---|---|
{rows}
"""


def page(results: list[dict[str, Any]], peak: float, threads: int, command: str) -> str:
    """The figures of a run as Markdown: where and with what they were measured, and each system's row."""
    versions = {
        "unistack_aot": ua.__version__,
        "onnxruntime": onnxruntime.__version__,
        "openvino": openvino.__version__ if openvino else "absent",
        "C++ compiler": compiler(LEVELS[cpu_facts.isa_levels()[-1]]).version.splitlines()[0],
        "Python, numpy": f"{platform.python_version()}, {numpy.__version__}",
        "system": cpu_facts.kernel(),
    }
    return TEXT.format(
        date=datetime.now(UTC).date().isoformat(),
        machine=f"{cpu_facts.cores()} cores of {cpu_facts.model()} ({cpu_facts.isa_levels()[-1]})",
        command=command,
        versions="\n".join(f"| {what} | {version} |" for what, version in versions.items()),
        threads=threads,
        block=BLOCK,
        peak=peak / 1e9,
        rows="\n".join(row for result in results for row in _rows(result, peak)),
    )


def _rows(result: dict[str, Any], peak: float) -> list[str]:
    rows: list[str] = []
    work, systems = result["flop"], result["systems"]
    ours = systems["unistack_aot"]["median"]
    for name, times in systems.items():
        rate = work / times["median"]
        first = (result["model"], f"{work / 1e9:.2f}") if not rows else ("", "")
        cells = (
            *first,
            name,
            f"{1e3 * times['median']:.2f}",
            f"{1e3 * times['best']:.2f}",
            str(times["runs"]),
            f"{rate / 1e9:.1f}",
            f"{100 * rate / peak:.0f} %",
            f"{times['median'] / ours:.2f} x" if rows else "",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def operations(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> float:
    """Multiplications and additions of all contractions, for the shapes of these inputs."""
    graph = bound(import_model(model).graph, feeds)
    return float(
        sum(
            2 * roundings(node) * prod(d for d in node.tensor.shape if isinstance(d, int))
            for node in graph.nodes()
            if node.op.family == "contract"
        )
    )


def measured_peak(threads: int) -> float:
    """FLOP/s of independent f32 multiply-adds in registers, from the lab's own probe."""
    arch = cpu_facts.isa_levels()[-1]
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        answer = cpu_fma.run(Setting("cpu", arch, Path(scratch), {}, quick=True))
    found = {finding.name: finding.value for finding in answer.findings}
    every = cpu_facts.cores()
    return found["fma.f32"] if threads >= every else found["fma.f32.one"] * threads


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
