"""Writes docs/walkthrough.md: three small models at every stage, from ONNX nodes to generated code and the package."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import ModelProto, helper

# Run as a file, this script would itself answer to the name of the package it imports.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.builder import tensor
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.text import print_graph
from unistack_aot.artifact.reader import open_package
from unistack_aot.base.errors import MissingTool
from unistack_aot.cli.counters import HEAD, numbers
from unistack_aot.cli.face import columns
from unistack_aot.cli.inputs import invented_feeds
from unistack_aot.emulator.build import host_compiler
from unistack_aot.emulator.counters import by_kernel
from unistack_aot.emulator.load import activate
from unistack_aot.mcir.program import Program
from unistack_aot.mcir.text import program_text
from unistack_aot.onnx_in import Imported
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime.session import load
from unistack_aot.schedule.uses import touched
from unistack_aot.stages import Hooks
from unistack_aot.targets.cuda.build import nvcc
from unistack_aot.targets.cuda.sass import binary_tool
from unistack_aot.targets.registry import split_name
from unistack_aot.targets.target import Request, Scheduled, Source

PAGE = Path(__file__).resolve().parents[1] / "docs" / "walkthrough.md"
CPU = "cpu:x86-64-v3"
GPU = "cuda:sm_90"
COUNTING = "emulator:sm_90-checked"  # the very text that the CUDA compiler gets for sm_90
ROWS = 128  # of symbolic extent, where traffic is counted
MACHINE_CODE = "Machine code for cuda:sm_90"
TRAFFIC = "Traffic of cuda:sm_90, counted by the emulator"
T = TypeVar("T")

Nodes = list[onnx.NodeProto]
Weights = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """A title, what it is there to show, and the model."""

    title: str
    shows: str
    proto: ModelProto


def _made(
    name: str,
    nodes: Nodes,
    inputs: dict[str, list[int | str]],
    shape: list[int | str],
    weights: Weights,
) -> ModelProto:
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", kind, shape)],
        [tensor(n, np.asarray(array)) for n, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=f"/{output}/{op}", **attributes)


def convolution() -> Model:
    """A convolution with its batch normalisation and ReLU."""
    rng = np.random.default_rng(1)
    nodes = [
        _node("Conv", "x w", "conv", pads=[1, 1, 1, 1]),
        _node("BatchNormalization", "conv scale bias mean var", "norm"),
        _node("Relu", "norm", "y"),
    ]
    weights: Weights = {"w": rng.standard_normal((32, 16, 3, 3), np.float32)}
    for name in ("scale", "bias", "mean"):
        weights[name] = rng.standard_normal(32, np.float32)
    weights["var"] = rng.random(32, np.float32) + 0.5
    proto = _made("convolution", nodes, {"x": [1, 16, 28, 28]}, [1, 32, 28, 28], weights)
    shows = (
        "BatchNorm is linear per channel, so it goes into the weights; what is left of it is one added constant. The "
        "activation gets blocks of 16 channels and a halo of zeros, so that the kernel has no bounds to check."
    )
    return Model("Convolution, BatchNorm, ReLU", shows, proto)


def feed_forward() -> Model:
    """A layer normalisation, a matrix product and GELU."""
    rng = np.random.default_rng(2)
    nodes = [
        _node("LayerNormalization", "x scale bias", "norm", axis=-1, epsilon=1e-5),
        _node("MatMul", "norm w", "product"),
        _node("Add", "product b", "sum"),
        _node("Gelu", "sum", "y"),
    ]
    weights: Weights = {
        "scale": rng.standard_normal(64, np.float32),
        "bias": rng.standard_normal(64, np.float32),
        "w": rng.standard_normal((64, 256), np.float32),
        "b": rng.standard_normal(256, np.float32),
    }
    proto = _made("feed_forward", nodes, {"x": ["rows", 64]}, ["rows", 256], weights)
    shows = (
        "Mean and variance come from one pass with a carried state; the row stays in registers until it is normalised. "
        "Bias and GELU are applied to each finished tile of the product. The number of rows is symbolic."
    )
    return Model("LayerNorm, matrix product, GELU", shows, proto)


def attention() -> Model:
    """Masked attention, as exporters write it."""
    heads: list[int | str] = [1, 2, 128, 32]
    nodes = [
        _node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        _node("MatMul", "q kt", "scores"),
        _node("Mul", "scores scale", "scaled"),
        _node("Add", "scaled mask", "masked"),
        _node("Softmax", "masked", "weights", axis=-1),
        _node("MatMul", "weights v", "y"),
    ]
    inputs: dict[str, list[int | str]] = {
        "q": heads,
        "k": heads,
        "v": heads,
        "mask": [1, 1, 128, 128],
    }
    weights: Weights = {"scale": np.float32(32**-0.5)}
    proto = _made("attention", nodes, inputs, heads, weights)
    shows = (
        "exp(a + b) = exp(a) exp(b) and multiplication distributes over addition, so the weighted sum is a stream over "
        "keys with state (maximum, sum, accumulator): the matrix of scores never exists in memory."
    )
    return Model("Masked attention", shows, proto)


class Watcher:
    """Keeps the value of every stage."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def __call__(self, stage: str, value: T, /) -> T:
        """Note a stage's value."""
        self.seen[stage.split(" ")[0]] = value
        return value


def page() -> str:
    """The whole page."""
    head = [
        "# From ONNX to machine code, step by step",
        "",
        "Written by `scripts/walkthrough.py`; a test writes it again and compares. The language of",
        "graphs is explained in [aicf.md](aicf.md), that of memory programs in [mcir.md](mcir.md).",
        "Digests of constants are numbered here: d0, d1 and so on.",
    ]
    parts = [
        section for make in (convolution, feed_forward, attention) for section in _sections(make())
    ]
    return numbered("\n".join([*head, *parts]) + "\n")


def numbered(text: str) -> str:
    """The text with digests numbered: a linear algebra library may round constants in its own way."""
    known: dict[str, str] = {}

    def label(found: re.Match[str]) -> str:
        return known.setdefault(found[0][:16], f"d{len(known)}")

    return re.sub(r"(?<=[#_\"])(?:[0-9a-f]{64}|[0-9a-f]{16})(?![0-9a-f])", label, text)


def tools() -> dict[str, str]:
    """By title of a part that not every machine can write: "made with ...", or "" if it cannot be made here."""
    try:
        release = re.search(r"V([\d.]+)", nvcc().version)
        readable = binary_tool("cuobjdump") and binary_tool("nvdisasm")
        code = f"nvcc {release[1]}" if release and readable else ""
    except MissingTool:
        code = ""
    try:
        command = host_compiler()
        ran = subprocess.run(
            [*command, "-dumpversion"], capture_output=True, text=True, check=False
        )
        host = f"{Path(command[-1]).name} {ran.stdout.strip()}" if find_spec("pycuda") else ""
    except MissingTool:
        host = ""
    return {
        title: f"Made with {made}." if made else ""
        for title, made in ((MACHINE_CODE, code), (TRAFFIC, host))
    }


def without(text: str, title: str) -> str:
    """A page without the parts of one title."""
    return re.sub(rf"\n### {re.escape(title)}\n.*?(?=\n###? )", "", text, flags=re.DOTALL)


def _sections(model: Model) -> Iterator[str]:
    watcher = Watcher()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pkg"
        report = compile_model(model.proto, path, targets=(CPU,), hooks=Hooks(watch=watcher))
        listing = tuple(_listing(path))
    yield from ("", f"## {model.title}", "", model.shows)
    yield from _block("ONNX", "", onnx_lines(model.proto))
    imported: Imported = watcher.seen["imported"]
    yield from _block("AICF as imported", "", [print_graph(imported.graph, imported.origins)])
    assert report.rules is not None  # compilation began with the model
    fired = [f"* {name}: {count}" for name, count in sorted(report.rules.fired.items()) if count]
    ruled: Graph = watcher.seen["rules"]
    yield from ("", "### Rules that fired", "", *(fired or ["none"]))
    yield from _block("AICF after the rules", "", [print_graph(ruled, imported.origins)])
    naive, constants = watcher.seen["lowered"]
    yield from _block("Naive MCIR", "mcir", [_shown(naive)])
    yield from cpu_sections(watcher)
    yield from gpu_sections(naive, constants, dict(imported.ranges.items()))
    yield from traffic_section(model.proto)
    yield from _block("Package", "", listing)


def _block(title: str, language: str, lines: list[str] | tuple[str, ...]) -> Iterator[str]:
    yield from ("", f"### {title}", "", f"```{language}", "\n".join(lines).rstrip("\n"), "```")


def onnx_lines(proto: ModelProto) -> list[str]:
    """The nodes of a model, one a line."""
    return [
        f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})"
        + "".join(f" {a.name}={helper.get_attribute_value(a)}" for a in node.attribute)
        for node in proto.graph.node
    ]


def _shown(program: Program) -> str:
    """A program's text without buffers that nothing uses any more."""
    used = set[str]().union(*(touched(step) for step in program.steps))
    used |= {b.alias_of for b in program.buffers if b.name in used and b.alias_of is not None}
    kept = tuple(b for b in program.buffers if b.name in used or not program.steps)
    return program_text(Program(program.name, kept, program.steps))


def _decided(scheduled: Scheduled) -> Iterator[str]:
    yield from ("", *(f"* {decision}" for decision in scheduled.decisions))


def cpu_sections(watcher: Watcher) -> Iterator[str]:
    """Decisions, the scheduled program and the C++ of its kernels."""
    scheduled: Scheduled = watcher.seen["scheduled"]
    source: Source = watcher.seen["source"]
    yield from ("", f"### Decisions for {CPU}", *_decided(scheduled))
    yield from _block(f"MCIR for {CPU}", "mcir", [_shown(scheduled.program)])
    kernels = [text for name, text in source.files if name.startswith("kernels")]
    yield from _block("C++ of the kernels", "cpp", kernels)


def gpu_sections(naive: Program, constants: Any, ranges: Any) -> Iterator[str]:
    """Decisions, the scheduled program and the CUDA C++ of its kernels."""
    target, level = split_name(GPU)
    made_with = tools()[MACHINE_CODE]
    request = Request(GPU, str(level), "f32", ranges)
    scheduled = target.schedule(naive, constants, request)
    keys = {b.name: b.name for b in scheduled.program.buffers}
    dims = {name: number for number, name in enumerate(ranges)}
    source = target.emit(scheduled.program, request, keys, dims)
    yield from ("", f"### Decisions for {GPU}", *_decided(scheduled))
    yield from _block(f"MCIR for {GPU}", "mcir", [_shown(scheduled.program)])
    yield from _block("CUDA C++ of the kernels", "cuda", [text for _, text in source.files])
    if made_with:
        code = target.build(source, request, lambda *_: None)
        table = target.listings(source, code, str(level), False).table
        yield from ("", f"### {MACHINE_CODE}", "", *MACHINE_CODE_NOTES, made_with)
        # On its side: kernels are few, facts are many.
        rows = list(zip(*table, strict=True))
        turned = [row for row in rows if row in rows[:5] or set(row[1:]) != {"0"}]
        yield from ("", "```", *columns(turned, "l" + "r" * len(table)), "```")


MACHINE_CODE_NOTES = (
    "Registers and bytes of stack (spills) are of one thread, shared bytes of one block; what follows are",
    "instructions as they stand in the code, by kind. A kind that no kernel has is left out.",
)
TRAFFIC_NOTES = (
    "What threads asked to read and write, sectors of 32 bytes for each request of a warp, and the used part of",
    "their bytes (above 100 % where lanes share an address).",
)


def traffic_section(proto: ModelProto) -> Iterator[str]:
    """What the kernels move in one run, from an image that reports every access."""
    made_with = tools()[TRAFFIC]
    if not made_with:
        return
    emulator = activate()
    emulator.set_counting(True)
    emulator.clear_counters()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pkg"
        compile_model(proto, path, targets=(COUNTING,))
        session = load(path, "emulator")
        symbolic = [dim.name for dim in session.package.manifest.dims]
        session.run(invented_feeds(session.package, dict.fromkeys(symbolic, ROWS), 0))
    rows = [numbers(each) for each in by_kernel(emulator.counters())]
    at = "".join(f" {name} = {ROWS}." for name in symbolic)
    yield from ("", f"### {TRAFFIC}", "", *TRAFFIC_NOTES, f"{made_with}{at}", "", "```")
    yield from (*columns([*(row[:-1] for row in HEAD), *rows], "l" + "r" * 10), "```")


def _listing(path: Path) -> Iterator[str]:
    """Members, buffers and kernels of a package; sizes that depend on the compiler are left out."""
    package = open_package(path)
    (variant,) = package.manifest.variants
    yield f"members   {', '.join(sorted(m.name for m in package.manifest.members))}"
    for buffer in variant.buffers:
        kind = f"{buffer.dtype}[{', '.join(buffer.shape)}]"
        yield f"buffer    {buffer.kind:<9} {buffer.name}: {kind}  {buffer.nbytes} bytes"
    for kernel in variant.kernels:
        yield f"kernel    {kernel.symbol}  <- {', '.join(kernel.origins) or 'no node of its own'}"


def main(arguments: list[str]) -> int:
    """Write the page, or with --check tell whether it is up to date (exit code 1 if not)."""
    parser = argparse.ArgumentParser(description="Writes docs/walkthrough.md.")
    parser.add_argument("--check", action="store_true", help="compare only")
    options = parser.parse_args(arguments)
    made_with = tools()
    text = page()
    if options.check:
        return _compared(PAGE.read_text(), text, made_with)
    lacking = [title for title, made in made_with.items() if not made]
    if lacking:
        print(f"'{lacking[0]}' cannot be written: its tools are not here", file=sys.stderr)
        return 2
    PAGE.write_text(text)
    return 0


def _compared(old: str, text: str, made_with: dict[str, str]) -> int:
    for title, made in made_with.items():
        if not made or made not in old:
            why = "its tools are not here" if not made else f"the page was not {made.lower()}"
            print(f"not compared: {title}: {why}")
            old, text = without(old, title), without(text, title)
    return int(old != text)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
