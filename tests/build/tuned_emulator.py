"""Searches on the emulator, through the code that a GPU would run, by clocks of their own; prints JSON.

Not here: what is asserted (test_tuning_gpu.py). A process has one driver, and the emulator's must be
loaded before pycuda is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from models.builder import GraphBuilder
from unistack_aot.artifact.manifest import Kernel
from unistack_aot.artifact.reader import open_package
from unistack_aot.check.compile import Tuning, compile_model
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.pipeline import Report
from unistack_aot.runtime.session import Session, load
from unistack_aot.targets.cuda import target as cuda
from unistack_aot.targets.cuda.build import Resources
from unistack_aot.targets.cuda.source import KernelText, kernel_text
from unistack_aot.targets.cuda.spills import refuse_spills
from unistack_aot.targets.target import Source
from unistack_aot.tune.bench import seconds_by_launch

TARGET = "emulator:sm_80"
LIKED = "fma.f32.32x32x16.4x4"  # the tile whose groups the clock makes the fastest
THREADS, NEAR = 64, 12288


def product() -> onnx.ModelProto:
    """Two equal products, one after the other, whose depth may be split."""
    g = GraphBuilder("products")
    x = g.input("x", (64, 256))
    for name in ("first", "second"):
        with g.scope(name):
            x = g.op("Relu", g.op("MatMul", x, g.normal("w", (256, 256), 0.06)))
    g.output(x, "y", (64, 256))
    return g.build()


def attention() -> onnx.ModelProto:
    """softmax(q k') v of two heads."""
    g = GraphBuilder("attention")
    q, k, v = (g.input(name, (1, 2, 40, 16)) for name in "qkv")
    weights = g.op("Softmax", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
    g.output(g.op("MatMul", weights, v), "y", (1, 2, 40, 16))
    return g.build()


def seconds_of(kernel: Kernel) -> float:
    """The fewer doublings of threads and near bytes from those of `LIKED`, the faster."""
    threads, near = int(kernel.block[0]), int(kernel.shared_bytes)
    return 1e-6 * (2 + abs(log2(threads / THREADS)) + (abs(log2(near / NEAR)) if near else 0.0))


def clock(session: Session, feeds: Mapping[str, Any]) -> Mapping[int, float]:
    """Every launch is run and timed as on a GPU, and then takes what its kernel says."""
    measured = seconds_by_launch(session, feeds)
    assert measured and all(seconds >= 0 for seconds in measured.values())
    variant = session.variant
    return {n: seconds_of(variant.kernels[variant.launches[n].kernel]) for n in measured}


def compiled(
    folder: Path, model: onnx.ModelProto, seconds: float, name: str, database: str
) -> Report:
    """The model tuned on the emulator."""
    tuning = Tuning(seconds, folder / database, device=lambda _: "emulator", clock=clock)
    return compile_model(model, folder / name, (TARGET,), golden=False, tuning=tuning)


def entries(folder: Path) -> list[dict[str, Any]]:
    """What a database holds."""
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))]


def decided(package: Path, what: str) -> list[dict[str, Any]]:
    """The records of a kind of decision."""
    decisions = open_package(package).document("lock.json")["decisions"][TARGET]
    return [each for each in decisions if each["what"] == what]


def outputs(package: Path) -> np.ndarray[Any, Any]:
    """What a package computes from seeded inputs."""
    session, rng = load(package, "emulator"), np.random.default_rng(3)
    feeds = {
        each.name: rng.standard_normal([int(n) for n in each.shape]).astype(np.float32)
        for each in session.inputs
    }
    return session.run(feeds)["y"]


def apart(one: Path, other: Path) -> float:
    """The largest difference between what two packages compute."""
    return float(np.abs(outputs(one) - outputs(other)).max())


def searched(folder: Path, model: onnx.ModelProto, kind: str) -> dict[str, Any]:
    """A search that is interrupted, goes on, and is replayed."""
    found: dict[str, Any] = {}
    compile_model(model, folder / "plain.pkg", (TARGET,), golden=False)
    first = compiled(folder, model, 1e-3, "first.pkg", "db")
    found["first"] = (first.variants[0].tuned, entries(folder / "db"))
    second = compiled(folder, model, 600, "second.pkg", "db")
    found["second"] = (second.variants[0].tuned, entries(folder / "db"))
    replays = [compiled(folder, model, 0, f"{n}.pkg", "db") for n in "ab"]
    found["bytes"] = [each.written.sha256 for each in (second, *replays)]
    found["records"] = decided(folder / "a.pkg", kind)
    found["apart"] = apart(folder / "plain.pkg", folder / "a.pkg")
    return found


def wrong(folder: Path) -> dict[str, Any]:
    """The way that the clock likes best computes nothing."""

    def text(*arguments: Any) -> KernelText:
        made = kernel_text(*arguments)
        if made.way != LIKED:
            return made
        return replace(made, definition=made.definition.replace("{\n", "{\nreturn;\n", 1))

    cuda.kernel_text = text
    try:
        report = compiled(folder, product(), 600, "wrong.pkg", "wrong")
    finally:
        cuda.kernel_text = kernel_text
    return {
        "tuned": report.variants[0].tuned,
        "entries": entries(folder / "wrong"),
        "records": decided(folder / "wrong.pkg", "tile"),
        "apart": apart(folder / "plain.pkg", folder / "wrong.pkg"),
    }


def spilled(folder: Path) -> dict[str, Any]:
    """The way that the clock likes best needs more registers than there are."""
    build = cuda._emulated

    def checked(source: Source, level: str) -> bytes:
        found = {
            k.symbol: Resources(255, 32 * (source.ways[k.symbol] == LIKED), 0)
            for k in source.kernels
        }
        refuse_spills(source, found, (), machine_for_arch("sm_80"))
        return build(source, level)

    cuda._emulated = checked
    try:
        report = compiled(folder, product(), 600, "spilled.pkg", "spilled")
        again = compiled(folder, product(), 0, "again.pkg", "spilled")
    finally:
        cuda._emulated = build
    return {
        "tuned": report.variants[0].tuned,
        "bytes": [each.written.sha256 for each in (report, again)],
        "entries": entries(folder / "spilled"),
        "records": decided(folder / "spilled.pkg", "tile"),
        "apart": apart(folder / "plain.pkg", folder / "spilled.pkg"),
    }


def main(folder: Path) -> None:
    """Every search in a folder of its own."""
    found: dict[str, Any] = {}
    for name, model, kind in (
        ("product", product(), "tile"),
        ("attention", attention(), "attention"),
    ):
        (folder / name).mkdir()
        found[name] = searched(folder / name, model, kind)
    found["wrong"] = wrong(folder / "product")
    found["spilled"] = spilled(folder / "product")
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
