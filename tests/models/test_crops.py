"""Padded convolutions of a part of a tensor stay tiled on the host: the part is stored with a halo."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.lower import lower_graph
from unistack_aot.mcir.nodes import Contract, Fold
from unistack_aot.mcir.run import run_program
from unistack_aot.mcir.transform import walk
from unistack_aot.onnx_in import import_model
from unistack_aot.rules import apply_rules
from unistack_aot.targets.cpu import target as cpu
from unistack_aot.targets.target import Request
from unistack_aot.variants import signature_keys

HEADER = '<ir_version: 9, opset_import: ["" : 20]>\n'
LEVEL = "x86-64-v3"
CROPS = {  # the part of x, and its extents
    "a slice": "c = Slice (x, first, last, axes)",
    "negative pads": "c = Pad (x, minus)",
    "pads on one side, negative ones on the other": "c = Pad (x, mixed)",
}
MODEL = """
g (float[BATCH,16,9,10] x) => (float[BATCH,16,H,W] y)
<
    int64[2] first = {1, 2}, int64[2] last = {8, 9}, int64[2] axes = {2, 3},
    int64[8] minus = {0, 0, -1, -2, 0, 0, -1, 0}, int64[8] mixed = {0, 0, -1, 2, 0, 0, 1, -3}
>
{
    CROP
    p = Conv <pads = [1, 1, 1, 1]> (c, w)
    y = Conv <pads = [1, 1, 1, 1], group = 16> (c, v)
    z = Identity (p)
}
"""


def model(crop: str, batch: str) -> onnx.ModelProto:
    """Dense and depthwise convolutions of one crop."""
    text = MODEL.replace("CROP", crop).replace("BATCH", batch)
    found = onnx.parser.parse_model(HEADER + text)
    random = np.random.default_rng(3)
    for name, shape in {"w": (16, 16, 3, 3), "v": (16, 1, 3, 3)}.items():
        array = random.standard_normal(shape).astype(np.float32)
        found.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    info = onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)
    found.graph.output.append(info)
    return found


@pytest.mark.parametrize("batch", ["2", "N"])
@pytest.mark.parametrize("crop", CROPS)
def test_a_crop_before_a_padded_convolution_keeps_it_tiled(crop: str, batch: str) -> None:
    imported = import_model(model(CROPS[crop], batch), {"N": (1, 4)} if batch == "N" else {})
    graph, _ = apply_rules(imported.graph, imported.origins)
    naive, constants = lower_graph(graph, imported.origins)
    request = Request(f"cpu:{LEVEL}", LEVEL, "f32", dict(imported.ranges.items()), verify=2)
    done = cpu.schedule(naive, constants, request)
    kernels = [step.kernel for step in done.program.launches()]
    assert any(isinstance(s, Contract) for kernel in kernels for s in walk(kernel.body))
    folds = [s for kernel in kernels for s in walk(kernel.body) if isinstance(s, Fold)]
    assert all("where" not in str(fold.values) for fold in folds), "the depthwise one has no guards"
    records = [each for each in done.decisions if each.kind == "crop"]
    assert records and all("has other elements there" in each.because for each in records)
    x = np.random.default_rng(4).standard_normal((2, 16, 9, 10)).astype(np.float32)
    dims = {"N": 2} if batch == "N" else {}
    keys = signature_keys(graph, done.program)
    found = run_program(
        done.program, {b: x for b, key in keys.items() if key == "x"}, done.constants, dims
    )
    for name, want in evaluate_graph(imported.graph, {"x": x}).items():
        (got,) = (value for buffer, value in found.items() if keys[buffer] == name)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
