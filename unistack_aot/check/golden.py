"""Recorded runs that a package carries, so that it can test itself where it is deployed.

Their outputs come from onnxruntime, or from the float64 evaluation where the two differ by more than
the tolerance (onnxruntime's Sigmoid gives 0 below 6e-8), never from compiled code.
"""

from __future__ import annotations

from collections.abc import Mapping

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Array, Input
from unistack_aot.artifact.manifest import Golden, Manifest, Tensor, Tolerance
from unistack_aot.artifact.tensors import TensorFile
from unistack_aot.base.errors import UnistackError
from unistack_aot.base.symbolic import text
from unistack_aot.check.cases import sizes_to_try
from unistack_aot.check.compare import difference
from unistack_aot.check.feeds import drawn, nbytes
from unistack_aot.check.oracles import Feeds, Runtime, bound, exact
from unistack_aot.check.tolerance import Bound, Rounding, bounds, magnitudes
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
    outputs: dict[str, Array] = {}
    for name, node in fixed.outputs:
        answer = truth[name]
        if not isinstance(found, str):
            # An index or a bool may differ by a tie, which float64 breaks otherwise than kernels do.
            real = limits[name].ulp > 0
            disputed = real and difference(found[name], answer).error > limits[name].ulps
            answer = answer if disputed else found[name]
        outputs[name] = answer.astype(node.tensor.dtype.numpy)
    return outputs, _tolerances(limits, outputs)


def _tolerances(limits: Mapping[str, Bound], outputs: Mapping[str, Array]) -> tuple[Tolerance, ...]:
    """relative * |golden| + absolute covers the tolerance of check(): relative * max(|x|, rms)."""
    found: list[Tolerance] = []
    for name, limit in limits.items():
        array = outputs[name]
        exact_type = not limit.ulp
        relative = 0.0 if exact_type else limit.relative
        smallest = 0.0 if exact_type or not array.size else float(magnitudes(array).min())
        found.append(Tolerance(name, relative, relative * smallest))
    return tuple(found)
