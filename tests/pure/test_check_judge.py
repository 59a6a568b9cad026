"""Judgement without a compiler: sessions that answer wrongly on purpose, and the search for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.aicf.op import Array
from unistack_aot.artifact.manifest import Manifest, Tolerance
from unistack_aot.artifact.tensors import TensorFile, read_tensors
from unistack_aot.check import bisect, golden, oracles
from unistack_aot.check.checker import Case, Subject, judge_case
from unistack_aot.check.oracles import Runtime
from unistack_aot.check.tolerance import Rounding
from unistack_aot.check.verdict import OutputResult, Verdict
from unistack_aot.onnx_in import import_model

WEIGHT = np.random.default_rng(1).standard_normal((24, 16)).astype(np.float32)
Answer = Callable[[dict[str, Array]], dict[str, Array]]


def classifier(gain: float = 1.0) -> onnx.ModelProto:
    """Logits through tanh, which a gain of 1 saturates: many of the largest are as good as equal."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], "fc"),
            helper.make_node("Tanh", ["a"], ["t"], "squash"),
            helper.make_node("Softmax", ["t"], ["p"], "probs"),
            helper.make_node("ArgMax", ["p"], ["k"], "best", axis=-1, keepdims=0),
        ],
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 24])],
        [
            helper.make_tensor_value_info("p", TensorProto.FLOAT, ["batch", 16]),
            helper.make_tensor_value_info("k", TensorProto.INT64, ["batch"]),
        ],
        [numpy_helper.from_array(WEIGHT * np.float32(gain), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def difference_of_squares() -> onnx.ModelProto:
    """(a + b)(a - b) - (a^2 - b^2): all of it cancels, whatever the arithmetic."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["s"], "s"),
        helper.make_node("Sub", ["a", "b"], ["d"], "d"),
        helper.make_node("Mul", ["s", "d"], ["m"], "m"),
        helper.make_node("Mul", ["a", "a"], ["aa"], "aa"),
        helper.make_node("Mul", ["b", "b"], ["bb"], "bb"),
        helper.make_node("Sub", ["aa", "bb"], ["q"], "q"),
        helper.make_node("Sub", ["m", "q"], ["z"], "z"),
    ]
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [500]) for n in "abz"]
    graph = helper.make_graph(nodes, "cancel", kinds[:2], kinds[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def judge(model: onnx.ModelProto, feeds: Mapping[str, Array], answer: Answer) -> Verdict:
    """What is said of a package that answers what `answer` makes of onnxruntime's outputs."""
    runtime = Runtime(model, 1)
    right = runtime.run(feeds)
    assert not isinstance(right, str)
    session: Any = SimpleNamespace(run=lambda _: answer(dict(right)))
    subject = Subject(import_model(model), runtime, session, Rounding())
    results, remark = judge_case(subject, Case("", feeds))
    return Verdict("m", "p", "cpu", tuple(results), (remark,) if remark else ())


def x_of(batch: int = 9) -> dict[str, Array]:
    return {"x": np.random.default_rng(0).standard_normal((batch, 24)).astype(np.float32)}


def test_right_answers_pass_before_onnxruntime() -> None:
    verdict = judge(classifier(), x_of(), lambda right: right)
    assert verdict and {r.judge for r in verdict.results} == {"onnxruntime"}


def test_a_value_off_by_a_thousandth_fails() -> None:
    def wrong(right: dict[str, Array]) -> dict[str, Array]:
        right["p"] = right["p"].copy()
        right["p"][4, 3] += 1e-3
        return right

    verdict = judge(classifier(), x_of(), wrong)
    assert not verdict
    assert [(r.output, r.passed, r.judge) for r in verdict.results] == [
        ("p", False, "float64"),
        ("k", True, "onnxruntime"),
    ]
    assert str(verdict).endswith("wrong: 1 of 2 outputs on cpu")


def test_a_wrong_class_fails() -> None:
    def wrong(right: dict[str, Array]) -> dict[str, Array]:
        right["k"] = right["k"].copy()
        right["k"][2] ^= 1
        return right

    failed = [r for r in judge(classifier(), x_of(), wrong).results if not r.passed]
    assert [(r.output, r.error, r.allowed) for r in failed] == [("k", 1.0, 0.0)]


def test_a_near_tie_is_no_fault() -> None:
    """Two equal columns of the weight: which of them is larger is up to rounding."""
    model = classifier()
    weight = WEIGHT.copy()
    weight[:, 5] = weight[:, 9] = np.abs(WEIGHT[:, 5]) * 4
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    feeds = {"x": np.abs(x_of(64)["x"]) * np.float32(0.02)}

    def other(right: dict[str, Array]) -> dict[str, Array]:
        right["k"] = np.where(right["k"] == 5, 9, right["k"])
        return right

    verdict = judge(model, feeds, other)
    assert verdict, str(verdict)
    assert any("near-ties" in r.remark for r in verdict.results)


def test_cancellation_is_measured_not_called_a_fault() -> None:
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal(500).astype(np.float32) for name in "ab"}

    def rounded(right: dict[str, Array]) -> dict[str, Array]:
        a, b = feeds["a"], feeds["b"]
        right["z"] = a * a - b * b - (a + b) * (a - b)
        return right

    verdict = judge(difference_of_squares(), feeds, rounded)
    assert verdict, str(verdict)
    assert verdict.results[0].remark == "ill-conditioned here"

    def wrong(right: dict[str, Array]) -> dict[str, Array]:
        right["z"] = right["z"] + np.float32(1e-3)
        return right

    assert not judge(difference_of_squares(), feeds, wrong)


def masked_softmax() -> onnx.ModelProto:
    """Attention's mask: ones stay, zeros become the lowest float."""
    nodes = [
        helper.make_node("Cast", ["mask"], ["m"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Sub", ["one", "m"], ["s"], "sub"),
        helper.make_node("Mul", ["s", "lowest"], ["a"], "mul"),
        helper.make_node("Add", ["x", "a"], ["b"], "add"),
        helper.make_node("Softmax", ["b"], ["y"], "softmax"),
    ]
    held = {"one": np.float32(1), "lowest": np.finfo(np.float32).min}
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8]),
            helper.make_tensor_value_info("mask", TensorProto.INT64, [4, 8]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("off, passes", [(0.0, True), (0.01, False)])
def test_a_mask_excuses_nothing(off: float, passes: bool) -> None:
    """One less one is exactly zero, so the lowest float times it is no rounding error."""
    random = np.random.default_rng(0)
    mask = np.ones((4, 8), np.int64)
    mask[1, 5:] = 0
    feeds = {"x": random.standard_normal((4, 8)).astype(np.float32), "mask": mask}

    def answer(right: dict[str, Array]) -> dict[str, Array]:
        right["y"] = right["y"] * np.float32(1 + off)
        return right

    assert bool(judge(masked_softmax(), feeds, answer)) is passes


def test_without_onnxruntime_float64_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Runtime(classifier(), 1).run(x_of())
    assert not isinstance(right, str)
    monkeypatch.setattr(oracles, "onnxruntime", None)
    runtime = Runtime(classifier(), 1)
    assert runtime.absent == "onnxruntime is not installed"
    session: Any = SimpleNamespace(run=lambda _: right)
    subject = Subject(import_model(classifier()), runtime, session, Rounding())
    results, _ = judge_case(subject, Case("", x_of()))
    assert results and all(r.passed and r.judge == "float64" for r in results)


def tapped(error: float) -> OutputResult:
    """A value that was looked at: 8 ulps are allowed."""
    return OutputResult("", "tap", "float32", error, 8.0, "float64", error <= 8.0)


@pytest.mark.parametrize("fault", ["fc", "squash", "probs", "best"])
def test_bisection_names_the_node(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value behind the faulty node is wrong, as it would be if they were compiled."""
    imported = import_model(classifier())
    names = ["fc", "squash", "probs", "best"]
    rounds: list[int] = []

    def look(_: bisect.Search, nodes: list[Any]) -> list[OutputResult]:
        rounds.append(len(nodes))
        places = [names.index(imported.origins.of(node)[0]) for node in nodes]
        errors = [100.0 if place >= names.index(fault) else 0.1 for place in places]
        return [tapped(error) for error in errors]

    monkeypatch.setattr(bisect, "look", look)
    monkeypatch.setattr(bisect, "TAPS", 2)
    culprit = bisect.first_wrong(imported, x_of(), ["p", "k"], "cpu", "cpu", Rounding())
    assert culprit.nodes == (fault,)
    assert culprit.error == 100.0 and culprit.allowed == 8.0
    assert max(rounds) <= 2
    assert str(culprit).startswith(f"first wrong value: {fault}\n")


def test_a_fault_that_vanishes_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_: bisect.Search, nodes: list[Any]) -> list[OutputResult]:
        return [tapped(0.0) for _ in nodes]

    monkeypatch.setattr(bisect, "look", look)
    imported = import_model(classifier())
    culprit = bisect.first_wrong(imported, x_of(), ["p"], "cpu", "cpu", Rounding())
    assert "vanishes when the values between are stored" in culprit.remark
    assert culprit.nodes == ("fc", "squash", "probs")


@pytest.mark.parametrize(
    ("gain", "remark", "compared"),
    [
        (0.1, "2 recorded runs", {"p": True, "k": False}),
        (1.0, "2 recorded runs; near-ties decide k", {"p": True}),
    ],
)
def test_recorded_runs_hold_the_references_answers(
    gain: float, remark: str, compared: dict[str, bool]
) -> None:
    model = classifier(gain)
    made = golden.golden_set(model, import_model(model, {"batch": (1, 8)}), Rounding())
    assert made.remark == remark
    file = made.files[golden.MEMBER]
    assert isinstance(file, TensorFile)
    stored = read_tensors(memoryview(b"".join(file.chunks())), "golden")
    for entry in made.entries:
        x = stored[f"{entry.name}/input/x"].array()
        want = Runtime(model, 1).run({"x": x})
        assert not isinstance(want, str)
        for tolerance in entry.tolerances:
            got = stored[f"{entry.name}/output/{tolerance.output}"].array()
            np.testing.assert_array_equal(got, want[tolerance.output])
        assert {t.output: t.relative > 0 for t in entry.tolerances} == compared


def recorded(model: onnx.ModelProto) -> tuple[Array, Array, Tolerance]:
    """Input x, output y and the tolerance of the one run that is recorded of a model."""
    made = golden.golden_set(model, import_model(model), Rounding())
    file = made.files[golden.MEMBER]
    assert isinstance(file, TensorFile)
    stored = read_tensors(memoryview(b"".join(file.chunks())), "golden")
    [entry] = made.entries
    [tolerance] = entry.tolerances
    x, y = (stored[f"{entry.name}/{name}"].array() for name in ("input/x", "output/y"))
    return x, y, tolerance


def test_recorded_runs_allow_what_rounding_does_at_ill_conditioned_inputs() -> None:
    """(x + 4096) - 4096 keeps eleven bits of x: an error of 2^-12, not of a few ulps, is right."""
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [64]) for n in "xy"]
    nodes = [
        helper.make_node("Add", ["x", "far"], ["a"]),
        helper.make_node("Sub", ["a", "far"], ["y"]),
    ]
    weights = [numpy_helper.from_array(np.full(64, 4096, np.float32), "far")]
    graph = helper.make_graph(nodes, "cancel", kinds[:1], kinds[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x, y, tolerance = recorded(model)
    rounded = (x + np.float32(4096)) - np.float32(4096)
    assert np.abs(rounded - x).max() > 2**-13
    allowed = tolerance.absolute + tolerance.relative * np.abs(y)
    assert np.all(np.abs(rounded - y) <= allowed)
    assert np.all(allowed < 0.05)


def ties() -> onnx.ModelProto:
    """1.5 or -1.5 rounded to whole numbers: each element is an exact tie."""
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 16]) for n in "xy"]
    nodes = [
        helper.make_node("Sign", ["x"], ["s"]),
        helper.make_node("Mul", ["s", "half"], ["h"]),
        helper.make_node("QuantizeLinear", ["h", "one", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "zero"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.float32(1.5), "half"),
        numpy_helper.from_array(np.float32(1.0), "one"),
        numpy_helper.from_array(np.int8(0), "zero"),
    ]
    graph = helper.make_graph(nodes, "ties", kinds[:1], kinds[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_recorded_runs_allow_the_quanta_that_rounding_moves() -> None:
    """Exact ties of a quantisation may fall to either side: one quantum, not two."""
    _, y, tolerance = recorded(ties())
    assert set(np.unique(y)) == {-2.0, 2.0}
    assert tolerance.absolute == 1.0
    assert tolerance.relative < 1e-5


@pytest.mark.parametrize(("step", "passed"), [(1.0, True), (2.0, False)])
def test_a_tie_may_fall_to_the_other_side_and_no_further(step: float, passed: bool) -> None:
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    y = 2 * np.sign(x)
    y[0] -= step * np.sign(y[0])
    session = SimpleNamespace(run=lambda feeds: {"y": y})
    model = ties()
    subject = Subject(import_model(model), Runtime(model, 1), session, Rounding())  # type: ignore[arg-type]
    ([result], _) = judge_case(subject, Case("", {"x": x}))
    assert (result.error, result.passed) == (16.0, passed)


def test_recorded_runs_take_the_float64_answer_where_onnxruntime_is_far_off() -> None:
    """Its Sigmoid gives 0 where the value is 1e-10: within no relative tolerance."""
    x, shift = np.zeros(8, np.float32), np.full(8, 23, np.float32)
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8]) for n in "xy"]
    nodes = [
        helper.make_node("Sub", ["x", "shift"], ["low"]),
        helper.make_node("Sigmoid", ["low"], ["y"]),
    ]
    weights = [numpy_helper.from_array(shift, "shift")]
    graph = helper.make_graph(nodes, "low", kinds[:1], kinds[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    theirs = Runtime(model, 1).run({"x": x})
    assert not isinstance(theirs, str) and not theirs["y"].all()
    made = golden.golden_set(model, import_model(model), Rounding())
    file = made.files[golden.MEMBER]
    assert isinstance(file, TensorFile)
    stored = read_tensors(memoryview(b"".join(file.chunks())), "golden")
    given = stored["run0/input/x"].array().astype(np.float64)
    want = (1 / (1 + np.exp(23 - given))).astype(np.float32)
    np.testing.assert_allclose(stored["run0/output/y"].array(), want, rtol=1e-5)


def test_sizes_that_do_not_fit_the_model_are_passed_over() -> None:
    """A window of 4 on open sizes: recorded from 4 on; a smaller one is not judged, and says why."""
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, "h", "w"]) for n in "xy"]
    for value in kinds[1:]:
        value.type.tensor_type.ClearField("shape")
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[4, 4])
    graph = helper.make_graph([node], "pool", kinds[:1], kinds[1:])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    imported = import_model(model)
    made = golden.golden_set(model, imported, Rounding())
    file = made.files[golden.MEMBER]
    assert made.remark == "2 recorded runs" and isinstance(file, TensorFile)
    stored = read_tensors(memoryview(b"".join(file.chunks())), "golden")
    assert [stored[f"run{k}/input/x"].array().shape[2:] for k in (0, 1)] == [(4, 4), (4, 7)]
    subject = Subject(imported, Runtime(model, 1), SimpleNamespace(), Rounding())  # type: ignore[arg-type]
    feeds = {"x": np.zeros((1, 1, 3, 7), np.float32)}
    results, remark = judge_case(subject, Case("h 3, w 7", feeds))
    assert results == []
    assert remark == (
        "h 3, w 7: not accepted by the model; a window of 4 does not fit an extent of 3"
    )


def test_large_runs_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "LARGEST", 100)
    made = golden.golden_set(classifier(), import_model(classifier()), Rounding())
    assert (made.entries, made.remark) == (
        (),
        "no recorded run: inputs and outputs of 0 MB",
    )


def test_signature_matches_the_package() -> None:
    described = golden.signature(import_model(classifier(), {"batch": (2, 5)}))
    assert isinstance(described, Manifest)
    assert described.inputs[0].shape == ("batch", "24")
    assert (described.dims[0].low, described.dims[0].high) == (2, 5)
