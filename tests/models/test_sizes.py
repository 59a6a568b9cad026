"""Sizes that a model's operators need: every run keeps to them, or is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import unistack_aot as ua
from unistack_aot.base.errors import BadInput

HEADER = '<ir_version: 9, opset_import: ["" : {opset}]>\n'

# Model, opset, and sizes of its inputs: those that onnxruntime runs too, those it refuses too.
NEEDS = {
    "a shape written into the model": (
        17,
        "g (float[N] x) => (float[1,3] y) <int64[2] s = {1,3}> { y = Reshape (x, s) }",
        [[(3,)]],
        [[(4,)], [(2,)]],
    ),
    "the rest of a division": (
        17,
        "g (float[N] x) => (float[2,A] y) <int64[2] s = {2,-1}> { y = Reshape (x, s) }",
        [[(4,)], [(2,)]],
        [[(3,)]],
    ),
    "an axis that vanishes": (
        17,
        "g (float[N,2] x) => (float[2] y) <int64[1] a = {0}> { y = Squeeze (x, a) }",
        [[(1, 2)]],
        [[(3, 2)]],
    ),
    "sizes of a split": (
        17,
        """g (float[N,2] x) => (float[A,2] y, float[B,2] z) <int64[2] s = {1,2}>
        { y, z = Split <axis=0> (x, s) }""",
        [[(3, 2)]],
        [[(2, 2)], [(5, 2)]],
    ),
    "equal parts": (
        13,
        "g (float[N,2] x) => (float[A,2] y, float[B,2] z) { y, z = Split <axis=0> (x) }",
        [[(4, 2)]],
        [[(3, 2)]],
    ),
    "channels of a convolution": (
        17,
        """g (float[1,N,5] x) => (float[1,2,M] y) <float[2,3,1] w = {1,2,3,4,5,6}>
        { y = Conv (x, w) }""",
        [[(1, 3, 5)]],
        [[(1, 2, 5)], [(1, 4, 5)]],
    ),
    "a window that fits": (
        17,
        "g (float[1,1,N] x) => (float[1,1,M] y) <float[1,1,3] w = {1,2,3}> { y = Conv (x, w) }",
        [[(1, 1, 3)], [(1, 1, 7)]],
        [[(1, 1, 2)], [(1, 1, 1)]],
    ),
    "the greatest of enough": (
        17,
        """g (float[N] x) => (float[A] y, int64[A] i) <int64[1] k = {3}>
        { y, i = TopK (x, k) }""",
        [[(3,)], [(5,)]],
        [[(2,)]],
    ),
    "a mirror": (
        18,
        """g (float[N] x) => (float[A] y) <int64[2] p = {2,2}>
        { y = Pad <mode="reflect"> (x, p) }""",
        [[(4,)], [(3,)]],
        [[(2,)], [(1,)]],
    ),
    "places known beforehand": (
        17,
        "g (float[N,4] x) => (float[A,4] y) <int64[2] i = {0,2}> { y = Gather (x, i) }",
        [[(3, 4)], [(5, 4)]],
        [[(2, 4)]],
    ),
    "an index within its data": (
        17,
        """g (float[N,4] x, int64[M,2] i) => (float[A,2] y)
        { y = GatherElements <axis=1> (x, i) }""",
        [[(3, 4), (3, 2)], [(3, 4), (2, 2)]],
        [[(2, 4), (3, 2)]],
    ),
    "updates within their data": (
        17,
        """g (float[N,4] x, int64[M,1] i, float[M,1] u) => (float[A,4] y)
        { y = ScatterElements <axis=1> (x, i, u) }""",
        [[(3, 4), (3, 1), (3, 1)], [(3, 4), (2, 1), (2, 1)]],
        [[(2, 4), (3, 1), (3, 1)]],
    ),
    "a slice as long as a constant": (
        17,
        """g (float[N] x) => (float[A] y) <int64[1] s = {0}, int64[1] e = {2}, float[2] c = {1,1}>
        { z = Slice (x, s, e)  y = Add (z, c) }""",
        [[(2,)], [(5,)]],
        [],
    ),
}


def feeds(model: onnx.ModelProto, shapes: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Random numbers, and index 1 everywhere."""
    draw = np.random.default_rng(0)
    kinds = [each.type.tensor_type.elem_type for each in model.graph.input]
    return {
        each.name: np.ones(shape, np.int64)
        if kind == onnx.TensorProto.INT64
        else draw.standard_normal(shape).astype(np.float32)
        for each, kind, shape in zip(model.graph.input, kinds, shapes, strict=True)
    }


@pytest.mark.parametrize("need", NEEDS)
def test_a_run_keeps_to_what_operators_need(need: str, tmp_path: Path) -> None:
    opset, text, good, bad = NEEDS[need]
    model = onnx.parser.parse_model(HEADER.format(opset=opset) + text)
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    ua.compile_model(model, tmp_path / "m.pkg", targets=("cpu",))
    ours = ua.load(tmp_path / "m.pkg", device="cpu")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    theirs = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for shapes in good:
        given = feeds(model, shapes)
        for got, want in zip(ours.run(given).values(), theirs.run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    for shapes in bad:
        given = feeds(model, shapes)
        with pytest.raises(Exception, match=r"(?i)onnxruntime|shape|size|index|dim|expected"):
            theirs.run(None, given)
        with pytest.raises(BadInput):
            ours.run(given)


def test_the_demand_names_the_node_and_the_sizes(tmp_path: Path) -> None:
    opset, text, _, bad = NEEDS["an index within its data"]
    model = onnx.parser.parse_model(HEADER.format(opset=opset) + text)
    ua.compile_model(model, tmp_path / "m.pkg", targets=("cpu",))
    with pytest.raises(BadInput) as caught:
        ua.load(tmp_path / "m.pkg", device="cpu").run(feeds(model, bad[0]))
    assert caught.value.what == (
        "GatherElements_0 (y) reaches that far along axis 0, which needs N >= M; here M = 3, N = 2"
    )
