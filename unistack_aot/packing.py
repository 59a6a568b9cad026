"""What goes into a package besides machine code: signature, certificates, provenance, the lock.

Not here: the order of passes (pipeline.py), the file itself (artifact/).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Input
from unistack_aot.aicf.types import TensorType
from unistack_aot.artifact import manifest
from unistack_aot.artifact.manifest import UNBOUNDED
from unistack_aot.artifact.tensors import TensorFile
from unistack_aot.artifact.writer import Written, write_package
from unistack_aot.base.options import DimRange, Options
from unistack_aot.base.symbolic import text
from unistack_aot.onnx_in import Imported
from unistack_aot.runtime.layout import certify
from unistack_aot.schedule.choices import Choice
from unistack_aot.schedule.decision import Record
from unistack_aot.targets.target import Constants, Request, Scheduled, Target

T = TypeVar("T")
Groups = tuple[tuple[int, ...], ...]
"""Numbers of launches that belong together: those of one place of a kernel."""
VERSION = "0.1.0"


@dataclass(frozen=True, slots=True)
class About:
    """What all stages know of a model: name, nodes, opset, signature, dimensions.

    `operators` are the model's nodes and their operators, `unused` the nodes that no output needs,
    `gone` the reasons why a node may have no kernel (rules/fates.py), `remarks` what had to be
    assumed of the model, `demands` what each run must satisfy.
    """

    name: str
    onnx_nodes: int
    opset: int
    inputs: tuple[manifest.Tensor, ...]
    outputs: tuple[manifest.Tensor, ...]
    ranges: Mapping[str, tuple[int, int | None]]
    operators: Mapping[str, str] = field(default_factory=dict[str, str])
    unused: tuple[str, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict[str, str])
    remarks: tuple[str, ...] = ()
    demands: tuple[manifest.Demand, ...] = ()


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """Recorded runs for the package's self-test, their files by member name, and a remark."""

    entries: tuple[manifest.Golden, ...] = ()
    files: Mapping[str, TensorFile] = field(default_factory=dict[str, TensorFile])
    remark: str = ""


@dataclass(frozen=True, slots=True)
class VariantReport:
    """What was built for one target, and how long it took in seconds.

    `predicted` is the time of a run at the sizes `at`, on the machine that map `map` describes;
    `tuned` says what was measured to choose better.
    """

    target: str
    kernels: int
    launches: int
    build_seconds: float
    predicted: float
    at: Mapping[str, int]
    map: str
    tuned: str = ""


@dataclass(frozen=True, slots=True)
class Built:
    """One variant ready to be packed: manifest entry, machine code, constants.

    `choices` could be made better by measuring; `launches` are, by key, the numbers of those that a
    choice shapes, for every place where the program has its kernel.
    """

    variant: manifest.Variant
    code: bytes
    constants: Constants
    report: VariantReport
    decisions: Sequence[Record] = ()
    choices: tuple[Choice, ...] = ()
    launches: Mapping[str, Groups] = field(default_factory=dict[str, Groups])


@dataclass(frozen=True, slots=True)
class Trial:
    """A variant in a package of its own, to be measured; `graph` says what its inputs mean."""

    package: Path
    choices: tuple[Choice, ...]
    launches: Mapping[str, Groups]
    graph: Graph | None


@dataclass(frozen=True, slots=True)
class Tuned:
    """A request with the best known ways of its kernels, and what was done to find them."""

    request: Request
    remark: str


Builder = Callable[[Request, Path], Trial]
Tuner = Callable[[Target, Request, Builder], Tuned]


def shaped(scheduled: Scheduled) -> dict[str, Groups]:
    """By key of each choice: the numbers of the launches that it shapes, by place."""
    writers: dict[str, list[int]] = {}
    for number, launch in enumerate(scheduled.program.launches()):
        for name in launch.writes():
            writers.setdefault(name, []).append(number)

    def group(names: Sequence[str]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(n for name in names for n in writers.get(name, ())))

    return {
        choice.key: tuple(filter(None, map(group, choice.writes))) for choice in scheduled.choices
    }


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


def about(imported: Imported) -> About:
    """What is known of a model once it is imported."""
    graph, opsets = imported.graph, imported.opsets
    return About(
        imported.name,
        imported.report.onnx_nodes,
        max(opset for domain, opset in opsets.items() if not domain or len(opsets) == 1),
        tuple(
            _tensor(node.op.label, node.tensor)
            for node in graph.inputs
            if isinstance(node.op, Input)
        ),
        tuple(_tensor(name, node.tensor) for name, node in graph.outputs),
        dict(imported.ranges),
        imported.report.operators,
        imported.report.unused,
        imported.report.gone,
        (*imported.report.assumed, *imported.report.refused, *imported.report.contradicted),
        tuple(manifest.Demand(text(d.value), d.sentence) for d in imported.report.demands),
    )


def _tensor(name: str, kind: TensorType) -> manifest.Tensor:
    return manifest.Tensor(name, kind.dtype.name, tuple(text(d) for d in kind.shape))


def signature(graph: Graph) -> tuple[list[str], list[str]]:
    """Names of inputs and outputs, in order."""
    labels = [node.op.label for node in graph.inputs if isinstance(node.op, Input)]
    return labels, [name for name, _ in graph.outputs]


def certificates(
    variant: manifest.Variant, dims: Sequence[manifest.Dim]
) -> tuple[manifest.Certificate, ...]:
    """Arena bytes and far traffic at the lowest, typical and (if bounded) highest sizes."""
    choices = [
        {dim.name: dim.low for dim in dims},
        {dim.name: dim.typical for dim in dims},
        {dim.name: dim.typical if dim.high >= UNBOUNDED else dim.high for dim in dims},
    ]
    distinct = {tuple(sorted(choice.items())): choice for choice in choices}
    return tuple(certify(variant, choice) for choice in distinct.values())


def manifest_dims(
    ranges: Mapping[str, tuple[int, int | None]], options: Options | None = None
) -> tuple[manifest.Dim, ...]:
    """The symbolic dimensions as the package describes them."""
    return tuple(
        _dim(name, bounds, options.dim(name) if options else None)
        for name, bounds in ranges.items()
    )


def _dim(name: str, bounds: tuple[int, int | None], asked: DimRange | None) -> manifest.Dim:
    low, high = bounds
    last = UNBOUNDED if high is None else high
    typical = low if high is None else high
    if asked is not None and low <= asked.typical <= last:
        typical = asked.typical
    return manifest.Dim(name, low, last, typical)


def pack(
    path: Path, known: About, built: Sequence[Built], golden: GoldenSet, options: Options
) -> Written:
    """Write the package."""
    constants = {key: array for b in built for key, array in b.constants.items()}
    description = manifest.Manifest(
        producer=f"unistack_aot {VERSION}",
        model=known.name,
        inputs=known.inputs,
        outputs=known.outputs,
        variants=tuple(b.variant for b in built),
        dims=manifest_dims(known.ranges, options),
        demands=known.demands,
        golden=golden.entries,
        options=(f"precision={options.precision}", f"convolution={options.convolution}"),
    )
    contents: dict[str, object] = {b.variant.code: b.code for b in built}
    contents["weights.safetensors"] = TensorFile(constants)
    contents.update(golden.files)
    contents["lock.json"] = _json(_lock(built, options))
    contents["provenance.json"] = _json(_provenance(known, built))
    return write_package(path, description, contents)  # type: ignore[arg-type]


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True, indent=1).encode()


def _provenance(known: About, built: Sequence[Built]) -> dict[str, object]:
    """The model's nodes by name: operator, and why it has no kernel where it has none.

    Which launches compute a node is in the manifest, by variant.
    """
    launched = [{o for launch in b.variant.launches for o in launch.origins} for b in built]
    everywhere = set.intersection(*launched) if launched else set[str]()
    return {
        "nodes": {
            name: {"op": op} | ({} if name in everywhere else {"gone": known.gone.get(name, "")})
            for name, op in known.operators.items()
        }
    }


def _lock(built: Sequence[Built], options: Options) -> dict[str, object]:
    """What was asked and what was decided, by variant; docs/mcir.md describes it."""
    decisions = {b.variant.target: list(b.decisions) for b in built}
    predicted = {
        b.variant.target: {
            "seconds": b.report.predicted,
            "at": dict(b.report.at),
            "map": b.report.map,
        }
        for b in built
    }
    return {"options": options.digest, "decisions": decisions, "predicted": predicted}
