"""THE ordered list of passes from an ONNX model to a package; read this page first.

    import -> rules -> lower -> [per target: schedule -> print -> build] -> package
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import onnx

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.types import TensorType
from unistack_aot.artifact import manifest
from unistack_aot.artifact.tensors import TensorFile
from unistack_aot.artifact.writer import Written, write_package
from unistack_aot.base.options import DimRequest, Options, dim_ranges
from unistack_aot.base.symbolic import Ranges, text
from unistack_aot.lower.driver import lower_graph
from unistack_aot.mcir.program import Kind, Program
from unistack_aot.onnx_in import Imported, import_model
from unistack_aot.targets.registry import split_name
from unistack_aot.targets.target import Constants, Progress, Request, Target

VERSION = "0.1.0"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VariantReport:
    """What was built for one target, and how long it took in seconds."""

    target: str
    kernels: int
    launches: int
    build_seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """What a compilation did."""

    model: str
    onnx_nodes: int
    aicf_nodes: int
    variants: tuple[VariantReport, ...]
    written: Written
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Built:
    """One variant ready to be packed: manifest entry, machine code, constants."""

    variant: manifest.Variant
    code: bytes
    constants: Constants
    report: VariantReport


def compile_model(
    model: str | Path | bytes | onnx.ModelProto,
    output: str | Path,
    targets: Sequence[str] = ("cpu",),
    dims: Mapping[str, DimRequest] | None = None,
    precision: str = "f32",
    progress: Progress = lambda name, done, total: None,
) -> Report:
    """Compile a model into one package file.

    `targets` as in "cpu", "cpu:x86-64-v3"; `dims` bounds symbolic dimensions: {"batch": (1, 8)}. Raises UnistackError
    subclasses for every user's mistake; nothing is written then.
    """
    clock = Clock()
    options = Options(targets=tuple(targets), dims=dim_ranges(dims or {}), precision=precision)  # type: ignore[arg-type]
    requests = [request for written in targets for request in _requests(written, options)]
    imported = clock.time("import", lambda: import_model(model, _declared(options)))
    graph = clock.time("rules", lambda: imported.graph)
    naive, constants = clock.time("lower", lambda: lower_graph(graph, imported.origins))
    ranges: Ranges = {name: bound for name, bound in imported.ranges.items()}
    built = [
        _variant(target, Request(name, level, options.precision, ranges), naive, constants, graph, progress)
        for target, name, level in requests
    ]
    written = clock.time("write", lambda: _write(Path(output), imported, graph, built, options))
    nodes = sum(1 for _ in graph.nodes())
    reports = tuple(b.report for b in built)
    return Report(imported.name, imported.report.onnx_nodes, nodes, reports, written, clock.seconds)


class Clock:
    """Wall time of named steps, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, work: Callable[[], T]) -> T:
        """Run `work` and note how long it took."""
        start = perf_counter()
        result = work()
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start
        return result


def _requests(written: str, options: Options) -> list[tuple[Target, str, str]]:
    target, level = split_name(written)
    return [(target, f"{target.name}:{found}", found) for found in target.levels(level)]


def _declared(options: Options) -> dict[str, int | tuple[int, ...]]:
    return {
        name: size.low if size.low == size.high else (size.low, size.high)
        for name, size in options.dims
    }


def _variant(
    target: Target,
    request: Request,
    naive: Program,
    constants: Constants,
    graph: Graph,
    progress: Progress,
) -> Built:
    start = perf_counter()
    scheduled = target.schedule(naive, constants, request)
    dims = {name: number for number, name in enumerate(request.ranges)}
    source = target.emit(scheduled.program, request, signature_keys(graph, scheduled.program), dims)
    code = target.build(source, request, progress)
    used = {b.key for b in source.buffers if b.kind == "constant"}
    kept = {key: array for key, array in scheduled.constants.items() if key in used}
    member = f"{request.name.replace(':', '/')}{'.so' if target.name == 'cpu' else '.cubin'}"
    variant = manifest.Variant(
        target=request.name,
        code=member,
        buffers=source.buffers,
        kernels=source.kernels,
        steps=source.steps,
        needs=source.needs,
        weights=("weights.safetensors",),
    )
    launches = len(variant.launches)
    report = VariantReport(request.name, len(source.kernels), launches, perf_counter() - start)
    return Built(variant, code, kept, report)


def signature_keys(graph: Graph, program: Program) -> dict[str, str]:
    """The signature's names of input and output buffers."""
    inputs = [b.name for b in program.buffers if b.kind is Kind.INPUT]
    outputs = [b.name for b in program.buffers if b.kind is Kind.OUTPUT]
    labels = [getattr(node.op, "label") for node in graph.inputs]
    names = [name for name, _ in graph.outputs]
    return dict(zip((*inputs, *outputs), (*labels, *names), strict=True))


def _tensor(name: str, kind: TensorType) -> manifest.Tensor:
    return manifest.Tensor(name, kind.dtype.name, tuple(text(d) for d in kind.shape))


def _write(
    path: Path, imported: Imported, graph: Graph, built: Sequence[Built], options: Options
) -> Written:
    constants = {key: array for b in built for key, array in b.constants.items()}
    unbounded = 1 << 31
    dims = tuple(
        manifest.Dim(name, low, unbounded if high is None else high, low if high is None else high)
        for name, (low, high) in imported.ranges.items()
    )
    description = manifest.Manifest(
        producer=f"unistack_aot {VERSION}",
        model=imported.name,
        inputs=tuple(_tensor(node.op.label, node.tensor) for node in graph.inputs),  # type: ignore[attr-defined]
        outputs=tuple(_tensor(name, node.tensor) for name, node in graph.outputs),
        variants=tuple(b.variant for b in built),
        dims=dims,
        options=(f"precision={options.precision}",),
    )
    contents: dict[str, object] = {b.variant.code: b.code for b in built}
    contents["weights.safetensors"] = TensorFile(constants)
    contents["lock.json"] = json.dumps({"options": options.digest}, sort_keys=True).encode()
    return write_package(path, description, contents)  # type: ignore[arg-type]
