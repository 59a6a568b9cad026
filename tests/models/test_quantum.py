"""Quantised models: what rounding may do to a requantised output is one quantum at a few elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import unistack_aot as ua
from unistack_aot.check import Verdict
from unistack_aot.check.quantum import Moved, allowance, moved, nearest, quantum_of, steps
from unistack_aot.onnx_in import import_model

SCALE = 0.05
SIZE = 96


def network(weights: list[np.ndarray], zero: int = 3) -> onnx.ModelProto:
    """Three layers of int8 products, each requantised, and the last one as floats."""
    nodes, held = [], {}
    value = "x"
    for k, weight in enumerate(weights):
        held |= {f"w{k}": weight, f"s{k}": np.float32(SCALE), f"z{k}": np.int8(zero)}
        held[f"t{k}"] = np.float32(0.01)
        nodes += [
            helper.make_node("QuantizeLinear", [value, f"s{k}", f"z{k}"], [f"q{k}"], f"q{k}"),
            helper.make_node("DequantizeLinear", [f"q{k}", f"s{k}", f"z{k}"], [f"d{k}"], f"d{k}"),
            helper.make_node("DequantizeLinear", [f"w{k}", f"t{k}"], [f"f{k}"], f"f{k}"),
            helper.make_node("MatMul", [f"d{k}", f"f{k}"], [f"m{k}"], f"m{k}"),
        ]
        value = f"m{k}"
    nodes += [
        helper.make_node("QuantizeLinear", [value, "s0", "z0"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "s0", "z0"], ["y"], "y"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, SIZE])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def weights() -> list[np.ndarray]:
    random = np.random.default_rng(7)
    return [random.integers(-40, 40, (SIZE, SIZE)).astype(np.int8) for _ in range(3)]


def verdict(good: onnx.ModelProto, compiled: onnx.ModelProto, folder: Path) -> Verdict:
    """The verdict on a package of one model that is held against another."""
    package = folder / "m.pkg"
    ua.compile_model(compiled, package, targets=("cpu:x86-64-v3",), golden=False)
    return ua.check(good, package, bisect=False)


def test_the_model_itself_passes(tmp_path: Path) -> None:
    good = network(weights())
    found = verdict(good, good, tmp_path)
    assert found.passed, str(found)


@pytest.mark.parametrize("fault", ["zero point", "one weight"])
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    changed = weights()
    if fault == "one weight":
        changed[0][5, 11] = -changed[0][5, 11] or 40
        wrong = network(changed)
    else:
        wrong = network(changed, zero=4)
    found = verdict(network(weights()), wrong, tmp_path)
    assert not found.passed, str(found)
    (result,) = found.results
    assert result.judge == "float64"
    assert "elements off by" in result.remark and f"of {SCALE:.3g}; rounding moves" in result.remark


def test_the_quantum_of_an_output() -> None:
    graph = import_model(network(weights())).graph
    assert quantum_of(graph, "y") == pytest.approx(SCALE)


def test_steps_and_allowance() -> None:
    """0.05 * k are multiples, 0.06 is none; ten of a thousand may become 35, none stays none."""
    found = steps(np.array([0.1, -0.05], np.float32), 0.05)
    assert found is not None
    np.testing.assert_array_equal(found, [2, -1])
    assert steps(np.array([0.06], np.float32), 0.05) is None
    np.testing.assert_array_equal(nearest(np.array([0.06, 0.149]), 0.05), [1, 3])
    assert moved(np.array([1.0, 4.0, 2.0]), np.array([1.0, 2.0, 3.0])) == Moved(2, 2)
    assert allowance([Moved(0, 0)], 1000) == Moved(0, 0)
    assert allowance([Moved(10, 1), Moved(4, 1)], 1000) == Moved(35, 1)
