"""Models of the catalogue, compiled for the host and judged with derived tolerances.

A representative few always; the other small ones, and the search for a fault, when slow tests run.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import unistack_aot as ua
from models.catalogue import SMALL, entry
from models.judged import ranges
from tests.build.cpu_graphs import levels_here
from unistack_aot import pipeline
from unistack_aot.check import Verdict
from unistack_aot.ir.scalar import literal
from unistack_aot.mcir.nodes import Kernel, Store
from unistack_aot.mcir.program import Launch, Program
from unistack_aot.mcir.transform import rewrite

ALWAYS = ("resnet_small", "bert_small", "lstm_small", "generator_small_scan")
OTHERS = tuple(e.name for e in SMALL if e.name not in ALWAYS)


def compiled(name: str, folder: Path) -> tuple[Path, Path]:
    """The model's file and its package for the best level of this machine."""
    model, package = folder / f"{name}.onnx", folder / f"{name}.pkg"
    proto = entry(name).load()
    onnx.save(proto, str(model))
    ua.compile_model(
        model, package, targets=(f"cpu:{levels_here()[-1]}",), dims=ranges(entry(name), proto)
    )
    return model, package


def judged(name: str, folder: Path) -> None:
    """Every case of the catalogue, then the package's own recorded runs."""
    model, package = compiled(name, folder)
    verdicts: list[Verdict] = [
        ua.check(model, package, feeds=entry(name).feeds(case), bisect=False)
        for case in entry(name).cases
    ]
    for verdict in verdicts:
        assert verdict, f"{name}\n{verdict}"
        assert {r.judge for r in verdict.results} <= {"onnxruntime", "float64"}
    for each in ua.load(package, device="cpu").selftest():
        assert each.passed, each


@pytest.mark.parametrize("name", ALWAYS)
def test_model(name: str, tmp_path: Path) -> None:
    judged(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_model(name: str, tmp_path: Path) -> None:
    judged(name, tmp_path)


def _two_per_mille_more(launch: Launch) -> Launch:
    """The launch with every float it stores multiplied by 1.002, if it computes a tanh."""
    if "tanh" not in launch.label:
        return launch

    def change(stmt: object) -> Store | None:
        if not isinstance(stmt, Store):
            return None
        wrong = stmt.value * literal(1.002, stmt.value.dtype)
        return Store(stmt.buffer, stmt.index, wrong)

    kernel = launch.kernel
    body = rewrite(kernel.body, change)  # type: ignore[arg-type]
    return Launch(
        Kernel(kernel.params, body, kernel.reinterprets), launch.args, launch.origins, launch.label
    )


@pytest.mark.slow
def test_a_miscompiled_operator_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lowering that gets Tanh wrong: the verdict names the first node where it shows."""
    lower = pipeline.lower_graph

    def faulty(*arguments: object) -> tuple[Program, object]:
        program, constants = lower(*arguments)  # type: ignore[arg-type]
        return program.map_launches(_two_per_mille_more), constants

    monkeypatch.setattr(pipeline, "lower_graph", faulty)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 8])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 8])
    names = ["Sigmoid", "Tanh", "Softmax", "Relu"]
    values = ["x", "a", "b", "c", "y"]
    nodes = [
        onnx.helper.make_node(op, [values[k]], [values[k + 1]], f"node/{op}")
        for k, op in enumerate(names)
    ]
    graph = onnx.helper.make_graph(nodes, "g", [x], [y])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    package = tmp_path / "m.pkg"
    ua.compile_model(model, package, targets=(f"cpu:{levels_here()[-1]}",))
    verdict = ua.check(model, package)
    assert not verdict
    assert verdict.culprit is not None
    assert verdict.culprit.nodes == ("node/Tanh",), str(verdict)
