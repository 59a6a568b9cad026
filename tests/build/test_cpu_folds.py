"""Folds in vectors on the CPU: rows that fill no vector, and what is no number, as numpy has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.build.cpu_graphs import levels_here
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime.session import load

Array = np.ndarray[Any, Any]
LENGTHS = (3, 16, 17, 31, 100)
FOLDS = {
    "ReduceMax": lambda x: x.max(1, keepdims=True),
    "ReduceMin": lambda x: x.min(1, keepdims=True),
    "ArgMax": lambda x: x.argmax(1, keepdims=True),
    "ArgMin": lambda x: x.argmin(1, keepdims=True),
    "Softmax": lambda x: _weights(x) / _weights(x).sum(1, keepdims=True),
    "ReduceLogSumExp": lambda x: np.log(_weights(x).sum(1, keepdims=True)) + _base(x),
    "MeanVarianceNormalization": lambda x: (x - x.mean(1, keepdims=True)) / _deviation(x),
}


def _base(x: Array) -> Array:
    top = x.max(1, keepdims=True)
    return np.where(np.isinf(top), 0, top)


def _weights(x: Array) -> Array:
    return np.exp(x - x.max(1, keepdims=True))


def _deviation(x: Array) -> Array:
    return np.sqrt(x.var(1, keepdims=True)) + 1e-9


def rows(length: int) -> Array:
    """Normal numbers, ties, a NaN, infinities and zeros of both signs: in every row something else."""
    x = np.random.default_rng(length).standard_normal((10, length)).astype(np.float32)
    x[1] = np.round(x[1])  # ties
    x[2, length // 2] = np.nan
    x[3, -1] = np.nan
    x[3, 0] = np.nan
    x[4, length // 3] = -np.inf
    x[5] = -0.0
    x[6, ::2], x[6, 1::2] = 0.0, -0.0
    x[7] += 100  # variance by distances, not by squares
    x[8, -1] = 30.0
    x[9, :-1] = -np.inf
    return x


def model() -> Any:
    """Every fold of rows of every length."""
    ins = [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, (10, n)) for n in LENGTHS]
    nodes: list[Any] = []
    outs: list[Any] = []
    for n in LENGTHS:
        for op in FOLDS:
            given: dict[str, Any] = (
                {"axes": [1]} if op.startswith(("Reduce", "Mean")) else {"axis": 1}
            )
            nodes.append(helper.make_node(op, [f"x{n}"], [f"{op}_{n}"], **given))
            kind = TensorProto.INT64 if op.startswith("Arg") else TensorProto.FLOAT
            outs.append(helper.make_tensor_value_info(f"{op}_{n}", kind, None))
    graph = helper.make_graph(nodes, "folds", ins, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("level", levels_here())
def test_folds_of_rows_as_numpy(level: str, tmp_path: Path) -> None:
    feeds = {f"x{n}": rows(n) for n in LENGTHS}
    compile_model(model(), tmp_path / "folds.pkg", targets=(f"cpu:{level}",))
    found = load(tmp_path / "folds.pkg", device="cpu", threads=2).run(feeds)
    for n in LENGTHS:
        wide = rows(n).astype(np.float64)
        for op, reference in FOLDS.items():
            with np.errstate(all="ignore"):
                want = reference(wide)
            got = found[f"{op}_{n}"]
            np.testing.assert_allclose(got, want, 2e-5, 2e-5, err_msg=f"{op} of {n}")
        for op in ("ReduceMax", "ReduceMin"):
            assert np.signbit(found[f"{op}_{n}"][5]).all(), "-0 alone stays -0"
