"""Faults that random models found, each as a small model: right at every stage, also compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from models.fuzz_compiled import run_compiled
from models.fuzzing import Skip, examine
from models.random_graph import Made

HEADER = '<ir_version: 9, opset_import: ["" : 20]>\n'

MODELS = {
    "a permuted map inlined into its reader": """
        g (float[1,1,8,2] x) => (float[1,4,4,1] y)
        <float[4,1] scale = {1, 2, 3, 4}, float[4,1] shift = {4, 3, 2, 1}>
        {
            d = SpaceToDepth <blocksize = 2> (x)
            y = LayerNormalization <axis = 2> (d, scale, shift)
        }""",
    "a shift dropped in front of a product with constants": """
        g (float[2,3] x) => (float[2,2] y)
        <float[3] c = {1.5, -2, 0.25}, float[3,2] w = {1, 2, 3, 4, 5, 6}>
        { d = Sub (c, x)  y = MatMul (d, w) }""",
    "rows of scores that are hidden as a whole": """
        g (float[2,3,4] q, float[2,4,5] k, float[2,5,4] v, float[2,3,1] m) => (float[2,3,4] y)
        <float zero = {0}, float low = {-10000}>
        {
            s = MatMul (q, k)
            shown = Greater (m, zero)
            masked = Where (shown, s, low)
            p = Softmax <axis = -1> (masked)
            y = MatMul (p, v)
        }""",
    "a crop in front of a padded convolution": """
        g (float[1,2,6,5] x) => (float[1,1,3,4] y)
        <
            int64[2] first = {1, 1}, int64[2] last = {4, 5}, int64[2] axes = {2, 3},
            float[1,2,3,1] w = {1, 2, 3, 4, 5, 6}
        >
        {
            d = Slice (x, first, last, axes)
            y = Conv <pads = [1, 0, 1, 0]> (d, w)
        }""",
    "rows named by data of a flattened map": """
        g (float[2,3] x, int64[4] at) => (float[4] y)
        <int64[1] flat = {-1}>
        {
            twice = Add (x, x)
            row = Reshape (twice, flat)
            y = Gather (row, at)
        }""",
    "the norm of zeros": """
        g (float[2,3] x) => (float[2,3] y)
        <float zero = {0}>
        {
            none = Mul (x, zero)
            y = LpNormalization <axis = 1, p = 1> (none)
        }""",
    "a sequential map taken for independent": """
        g (float[7] x) => (float[1] y)
        <int64 axis = {0}>
        {
            s = CumSum <exclusive = 1> (x, axis)
            y = ReduceMax <keepdims = 1> (s)
        }""",
}


def made(text: str) -> Made:
    """The model with seeded inputs."""
    model = onnx.parser.parse_model(HEADER + text)
    random = np.random.default_rng(0)
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        feeds[value.name] = random.standard_normal(shape).astype(dtype)
    return Made(0, model, (feeds,))


@pytest.mark.parametrize("name", MODELS)
def test_stages(name: str) -> None:
    each = made(MODELS[name])
    try:
        fault = examine(each.model, each.feeds)
    except Skip as reason:
        pytest.fail(f"cannot be judged: {reason}")
    assert fault is None, fault


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_compiled(name: str, tmp_path: Path) -> None:
    assert run_compiled(made(MODELS[name]), tmp_path) == {}
