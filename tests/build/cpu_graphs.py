"""Graphs of op samples, and any graph run through the whole CPU target. Not here: any test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unistack_aot.aicf.bind import bind_value
from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Input, Op
from unistack_aot.aicf.types import TensorType
from unistack_aot.artifact.manifest import Variant
from unistack_aot.base.options import Options
from unistack_aot.base.symbolic import symbols
from unistack_aot.onnx_in.importer import Imported, Report
from unistack_aot.ops.core import item
from unistack_aot.ops.op import Sample, TensorOp
from unistack_aot.ops.samples import as_sample, parse_type, sample_arrays
from unistack_aot.packing import Clock
from unistack_aot.pipeline import compile_imported, requested
from unistack_aot.runtime.processor import this_processor
from unistack_aot.runtime.session import load
from unistack_aot.stages import Hooks

Array = np.ndarray[Any, Any]
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")
FAMILIES = sorted({cls.family for cls in Op.registry.values() if issubclass(cls, TensorOp)})


@dataclass(frozen=True)
class SampleGraph:
    """All samples of one family as one graph, with feeds and expected outputs by name."""

    graph: Graph
    feeds: dict[str, Array]
    dims: dict[str, int]
    expected: dict[str, Array]


def samples(family: str) -> Iterator[tuple[str, TensorOp, Sample]]:
    """Name, op and sample of every case of a family."""
    for name, cls in sorted(Op.registry.items()):
        if issubclass(cls, TensorOp) and cls.family == family:
            for number, given in enumerate(cls.samples):
                sample = as_sample(given)
                yield f"{name.replace('-', '_')}_{number}", cls(**dict(sample.attributes)), sample


def sample_graph(family: str) -> SampleGraph:
    """One graph of all samples: operand k of case c is input `c.k`, result k output `c.y.k`."""
    inputs: list[Node] = []
    outputs: list[tuple[str, Node]] = []
    feeds: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    dims: dict[str, int] = {}
    for case, op, sample in samples(family):
        types = tuple(parse_type(t) for t in sample.args)
        mine = {name: 3 for t in types for d in t.shape for name in symbols(d)}
        dims |= mine
        args = tuple(Node(Input(f"{case}.{k}", t)) for k, t in enumerate(types))
        arrays = sample_arrays(sample, mine)
        value = Node(op, args)
        single = isinstance(value.type, TensorType)
        results = (
            (value,) if single else tuple(item(value, k) for k in range(len(value.type.items)))
        )
        found = bind_value(op, mine).reference(*arrays)
        inputs += args
        feeds |= {f"{case}.{k}": array for k, array in enumerate(arrays)}
        for k, node in enumerate(results):
            outputs.append((f"{case}.y.{k}", node))
            expected[f"{case}.y.{k}"] = found[k] if isinstance(found, tuple) else found
    graph = Graph(family.replace("-", "_"), tuple(inputs), tuple(outputs))
    return SampleGraph(graph, feeds, dims, expected)


def levels_here() -> tuple[str, ...]:
    """The instruction-set levels whose code this processor runs."""
    processor = this_processor()
    return tuple(n for n in LEVELS if not processor.lacks(Variant(f"cpu:{n}", "", (), (), ())))


def run_on_cpu(
    graph: Graph,
    feeds: Mapping[str, Array],
    folder: Path,
    ranges: Mapping[str, tuple[int, int | None]] | None = None,
    target: str = "cpu",
) -> dict[str, Array]:
    """Compile a graph for this machine's CPU and run it with poisoned memory."""
    package = compile_graph(graph, folder / "graph.pkg", ranges, target)
    return load(package, "cpu", threads=2, poison=True).run(feeds)


def compile_graph(
    graph: Graph,
    package: Path,
    ranges: Mapping[str, tuple[int, int | None]] | None = None,
    target: str = "cpu",
) -> Path:
    """Compile a graph for a CPU; symbols without a range are at least 1."""
    names = {n for node in graph.inputs for d in node.tensor.shape for n in symbols(d)}
    bounds = {name: (ranges or {}).get(name, (1, None)) for name in sorted(names)}
    report = Report(0, 0, 0, {name: name for name in bounds}, (), ())
    imported = Imported(graph, Origins(), {"": 20}, graph.name, bounds, report)
    options = Options(targets=(target,), dims=(), precision="f32", override=None)
    compile_imported(imported, package, options, requested(options), Hooks(), Clock())
    return package
