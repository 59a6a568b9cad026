"""Finds the first wrong value of a package that failed: parts of its model are compiled again.

Not here: judging outputs (checker.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node, postorder
from unistack_aot.aicf.op import Array, Constant, Input
from unistack_aot.aicf.text import describe
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.errors import UnistackError
from unistack_aot.base.options import Options, Precision
from unistack_aot.check.conditioning import Conditioning
from unistack_aot.check.excuses import Excuses
from unistack_aot.check.oracles import bound, wide_values
from unistack_aot.check.tolerance import Rounding, bounds
from unistack_aot.check.verdict import Culprit, OutputResult
from unistack_aot.onnx_in import Imported
from unistack_aot.packing import Clock
from unistack_aot.pipeline import compile_imported, requested
from unistack_aot.runtime.session import load
from unistack_aot.stages import Hooks

TAPS = 8
"""Values looked at per round; each one may break a fusion, so they are few."""

Feeds = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Search:
    """What stays the same from round to round."""

    imported: Imported
    feeds: Feeds
    target: str
    device: str
    rounding: Rounding


def first_wrong(
    imported: Imported,
    feeds: Feeds,
    outputs: Sequence[str],
    target: str,
    device: str,
    rounding: Rounding,
) -> Culprit:
    """The first AICF value, in topological order, that is out of tolerance, and its ONNX nodes.

    `target` is the failing variant's. Values are stored as extra outputs, a few per round; where
    storing them cures the fault, that is said.
    """
    search = Search(imported, feeds, target, device, rounding)
    roots = [node for name, node in imported.graph.outputs if name in outputs]
    order = [node for node in postorder(*roots) if _storable(node)]
    low, high = -1, len(order) - 1
    found: OutputResult | None = None
    try:
        while high - low > 1 or found is None:
            taps = _spread(low, high)
            judged = look(search, [order[k] for k in taps])
            wrong = [k for k, tapped in zip(taps, judged, strict=True) if not tapped.passed]
            if not wrong:
                return _vanished(imported, order[low + 1 : high + 1])
            high = wrong[0]
            found = judged[taps.index(high)]
            low = max([low, *(k for k in taps if k < high)])
    except UnistackError as error:
        return Culprit("", (), 0.0, 0.0, f"the first wrong value was not found: {error.what}")
    node = order[high]
    assert found is not None
    nodes = imported.origins.of(node)
    return Culprit(describe(node), nodes, found.error, found.allowed, found.remark)


def _storable(node: Node) -> bool:
    return isinstance(node.type, TensorType) and not isinstance(node.op, Input | Constant)


def _spread(low: int, high: int) -> list[int]:
    """Up to TAPS positions after `low`, the last of them `high`."""
    count = min(TAPS, high - low)
    return sorted({low + (high - low) * (k + 1) // count for k in range(count)})


def _vanished(imported: Imported, suspects: Sequence[Node]) -> Culprit:
    labels = [label for node in suspects for label in imported.origins.of(node)]
    return Culprit(
        "a fused kernel over these nodes",
        tuple(dict.fromkeys(labels)),
        0.0,
        0.0,
        "the fault vanishes when the values between are stored: fusion or memory reuse makes it",
    )


def look(search: Search, nodes: Sequence[Node]) -> list[OutputResult]:
    """Compile the model up to some values, run it, and judge each as an output would be."""
    names = [f"tap{k}" for k in range(len(nodes))]
    graph = Graph(
        search.imported.graph.name,
        search.imported.graph.inputs,
        tuple(zip(names, nodes, strict=True)),
    )
    options = Options(
        targets=(search.target,),
        precision=_precision(search.rounding),
        convolution=search.rounding.convolution,
    )
    with tempfile.TemporaryDirectory(prefix="unistack_aot_") as folder:
        package = Path(folder) / "taps.pkg"
        compile_imported(
            replace(search.imported, graph=graph),
            package,
            options,
            requested(options),
            Hooks(),
            Clock(),
        )
        got = load(package, search.device).run(search.feeds)
    fixed = bound(graph, search.feeds)
    values = wide_values(fixed, search.feeds, fixed.results)
    limits = bounds(fixed, search.rounding)
    excuses = Excuses(Conditioning(search.rounding, fixed, search.feeds))
    found: list[OutputResult] = []
    for name, node in fixed.outputs:
        truth = values[node]
        assert not isinstance(truth, tuple)
        found.append(excuses.verdict("", name, got[name], truth, limits[name]))
    return found


def _precision(rounding: Rounding) -> Precision:
    match rounding.contraction:
        case "tf32" | "f16" | "bf16" as narrow:
            return narrow
        case _:
            return "f32"
