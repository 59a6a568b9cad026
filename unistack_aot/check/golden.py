"""Recorded runs that a package carries, so that it can test itself where it is deployed.

Their outputs come from onnxruntime, or from the float64 evaluation where the two differ by more than
the tolerance (onnxruntime's Sigmoid gives 0 below 6e-8), never from compiled code. Where inputs turn
out to be ill-conditioned the tolerance is what rounding really does there, as check() has it; an
output that ties decide is not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Array, Input
from unistack_aot.artifact.manifest import Golden, Manifest, Tensor, Tolerance
from unistack_aot.artifact.tensors import TensorFile
from unistack_aot.base.errors import UnistackError
from unistack_aot.base.symbolic import text
from unistack_aot.check.cases import sizes_to_try
from unistack_aot.check.compare import difference, differing
from unistack_aot.check.conditioning import DISTURBED_MARGIN, DISTURBED_RUNS, Conditioning
from unistack_aot.check.feeds import drawn, nbytes
from unistack_aot.check.oracles import Feeds, Runtime, bound, exact
from unistack_aot.check.quantum import moved, nearest, quantum_of
from unistack_aot.check.tolerance import MARGIN, Bound, Rounding, bounds, magnitudes
from unistack_aot.onnx_in import Imported
from unistack_aot.onnx_in.read import Model
from unistack_aot.packing import GoldenSet, manifest_dims

MEMBER = "golden.safetensors"
LARGEST = 4 << 20
"""Bytes of inputs and outputs beyond which no run is recorded."""
CASES = 2


def golden_set(model: Model, imported: Imported, rounding: Rounding, seed: int = 0) -> GoldenSet:
    """Up to two recorded runs at different sizes; where there is none, the remark says why."""
    described = signature(imported)
    runtime = Runtime(model, 2)
    entries: list[Golden] = []
    arrays: dict[str, Array] = {}
    remark, spent = "", 0
    for number, sizes in enumerate(sizes_to_try(described)[-CASES:]):
        given = sum(nbytes(tensor, sizes) for tensor in described.inputs)
        if spent + given > LARGEST:
            remark = f"inputs of {given / 1e6:.0f} MB"
            break
        feeds = drawn(described.inputs, sizes, imported.graph, seed + number)
        answers = _answers(imported.graph, runtime, feeds, rounding)
        if isinstance(answers, str):
            remark = answers
            continue
        outputs, tolerances = answers
        spent += sum(array.nbytes for array in (*feeds.values(), *outputs.values()))
        if spent > LARGEST:
            remark = f"inputs and outputs of {spent / 1e6:.0f} MB"
            break
        name = f"run{number}"
        entries.append(Golden(name, MEMBER, tolerances))
        arrays |= {f"{name}/input/{key}": array for key, array in feeds.items()}
        arrays |= {f"{name}/output/{key}": array for key, array in outputs.items()}
    if not entries:
        return GoldenSet(remark=f"no recorded run: {remark}")
    count = f"{len(entries)} recorded run{'s' * (len(entries) > 1)}"
    compared = [{tolerance.output for tolerance in entry.tolerances} for entry in entries]
    left = [
        name for name, _ in imported.graph.outputs if any(name not in each for each in compared)
    ]
    if left:
        count += f"; near-ties decide {', '.join(left)}"
    return GoldenSet(tuple(entries), {MEMBER: TensorFile(arrays)}, count)


def signature(imported: Imported) -> Manifest:
    """Inputs, outputs and dimensions of a model as its package will describe them."""
    graph = imported.graph
    inputs = tuple(
        Tensor(node.op.label, node.tensor.dtype.name, tuple(text(d) for d in node.tensor.shape))
        for node in graph.inputs
        if isinstance(node.op, Input)
    )
    return Manifest("", imported.name, inputs, (), (), manifest_dims(imported.ranges))


def _answers(
    graph: Graph, runtime: Runtime, feeds: Feeds, rounding: Rounding
) -> tuple[dict[str, Array], tuple[Tolerance, ...]] | str:
    """Outputs in the model's own types with their tolerances, or why there are none."""
    found = runtime.run(feeds)
    if isinstance(found, str) and not runtime.absent:
        return found
    try:
        fixed = bound(graph, feeds)
        truth = exact(fixed, feeds)
    except UnistackError as error:  # sizes that each dimension allows need not fit the model
        return error.what
    limits = bounds(fixed, rounding)
    conditioning = Conditioning(rounding, fixed, feeds)
    outputs: dict[str, Array] = {}
    tolerances: list[Tolerance] = []
    for name, node in fixed.outputs:
        theirs = None if isinstance(found, str) else found[name]
        answer = _Answer(name, truth[name], theirs, limits[name], node.tensor.dtype.numpy)
        outputs[name] = answer.recorded()
        tolerance = answer.tolerance(conditioning)
        if tolerance is not None:
            tolerances.append(tolerance)
    if not tolerances:
        return "rounding decides what every output is"
    return outputs, tuple(tolerances)


@dataclass(frozen=True, slots=True)
class _Answer:
    """One output of one run: exactly, as onnxruntime has it if it does, and the derived tolerance."""

    name: str
    truth: Array
    theirs: Array | None
    limit: Bound
    kind: np.dtype[Any]

    def recorded(self) -> Array:
        """onnxruntime's answer, unless it is far off."""
        if self.theirs is None or (self.limit.ulp > 0 and self._dispute > self.limit.ulps):
            return self.truth.astype(self.kind)
        # An index or a bool may differ by a tie, which float64 breaks otherwise than kernels do.
        return self.theirs.astype(self.kind)

    @property
    def _dispute(self) -> float:
        """How far onnxruntime is from the exact answer, which tells ill-conditioned inputs."""
        return inf if self.theirs is None else difference(self.theirs, self.truth).error

    def tolerance(self, conditioning: Conditioning) -> Tolerance | None:
        """relative * |golden| + absolute covers what check() allows; None where ties decide."""
        quantum = quantum_of(conditioning.graph, self.name)
        if quantum is not None:
            return self._quantised(conditioning, quantum)
        if not self.limit.ulp:
            return self._exact(conditioning)
        relative, scale = self.limit.relative, magnitudes(self.recorded())
        if self._dispute > self.limit.ulps / MARGIN:
            moves = conditioning.moves(self.name, self.truth, self.kind)
            relative, scale = max(relative, moves.ulps * self.limit.ulp), moves.scale
        return Tolerance(self.name, relative, relative * float(scale.min()) if scale.size else 0.0)

    def _quantised(self, conditioning: Conditioning, quantum: float) -> Tolerance:
        """Elements near a tie may be as many quanta off as rounding moves any of them."""
        runs = conditioning.runs(self.name, DISTURBED_RUNS, 1.0, self.truth)
        whole = nearest(self.recorded(), quantum)
        furthest = max(moved(nearest(run, quantum), whole).furthest for run in (self.truth, *runs))
        relative = self.limit.relative if self.limit.ulp else 0.0
        return Tolerance(self.name, relative, furthest * quantum)

    def _exact(self, conditioning: Conditioning) -> Tolerance | None:
        if self.limit.relative:  # computed from reals
            want = self.recorded()
            runs = list(conditioning.runs(self.name, DISTURBED_RUNS, DISTURBED_MARGIN, want))
            if len(runs) < DISTURBED_RUNS or any(np.any(differing(run, want)) for run in runs):
                return None
        return Tolerance(self.name, 0.0, 0.0)
