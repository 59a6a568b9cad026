"""Faults planted in the compiler: `check` fails on real models, and names the ONNX node where the fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import unistack_aot as ua
from models.catalogue import entry
from tests.build.cpu_graphs import levels_here
from unistack_aot import pipeline
from unistack_aot.ir.scalar import literal
from unistack_aot.mcir.nodes import Store
from unistack_aot.mcir.program import Launch, Program
from unistack_aot.mcir.transform import rewrite

Array = np.ndarray[Any, Any]
Fault = Callable[[Program, dict[str, Array], str, str], Program]


def wrong_constant(program: Program, constants: dict[str, Array], label: str, node: str) -> Program:
    """The largest element of the weights of one launch gets the other sign."""
    buffers = program.by_name()
    for launch in program.launches():
        if launch.label == label and node in launch.origins:
            for key in (buffers[name].constant for name in launch.args):
                if key is not None:
                    weights = constants[key].copy()
                    place = np.unravel_index(np.abs(weights).argmax(), weights.shape)
                    weights[place] = -weights[place]
                    constants[key] = weights
    return program


def wrong_formula(program: Program, constants: dict[str, Array], label: str, node: str) -> Program:
    """All that one launch stores is one per cent too large."""

    def larger(stmt: object) -> Store | None:
        if not isinstance(stmt, Store):
            return None
        return Store(stmt.buffer, stmt.index, stmt.value * literal(1.01, stmt.value.dtype))

    def change(launch: Launch) -> Launch:
        if launch.label != label or node not in launch.origins:
            return launch
        body = rewrite(launch.kernel.body, larger)  # type: ignore[arg-type]
        return replace(launch, kernel=replace(launch.kernel, body=body))

    return program.map_launches(change)


CASES: list[tuple[str, Fault, str, str]] = [
    ("bert_small", wrong_constant, "contract", "/encoder/layer.1/intermediate/MatMul"),
    ("bert_small", wrong_formula, "erf", "/encoder/layer.0/intermediate/Erf"),
    ("resnet_small", wrong_constant, "convolve", "/layer2/0/downsample/conv/Conv"),
    ("resnet_small", wrong_formula, "reduce", "/GlobalAveragePool"),
    ("resnet_int8_small", wrong_constant, "convolve", "/layer2/0/conv2/Conv"),
    ("resnet_int8_small", wrong_formula, "relu", "/layer2/0/conv1/Relu"),
    ("lstm_small", wrong_constant, "contract", "/head/MatMul"),
    ("lstm_small", wrong_formula, "log_softmax", "/LogSoftmax"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, fault, label, node", CASES)
def test_the_node_is_named(
    name: str, fault: Fault, label: str, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower = pipeline.lower_graph
    model, package = tmp_path / "model.onnx", tmp_path / "model.pkg"
    onnx.save(entry(name).load(), str(model))

    def faulty(*arguments: Any) -> tuple[Program, dict[str, Array]]:
        program, constants = lower(*arguments)
        constants = dict(constants)
        return fault(program, constants, label, node), constants

    monkeypatch.setattr(pipeline, "lower_graph", faulty)
    ua.compile_model(model, package, targets=(f"cpu:{levels_here()[-1]}",), golden=False)
    verdict = ua.check(model, package)
    assert not verdict
    assert verdict.culprit is not None
    assert node in verdict.culprit.nodes, str(verdict)
    assert label.replace("_", "-") in verdict.culprit.value.replace("_", "-"), str(verdict)
    assert verdict.culprit.error > verdict.culprit.allowed
