"""RNN, GRU, LSTM and CumSum against onnxruntime: directions, lengths, activations, layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.ops.single_node import check_node, draw, feeds_of, node_model
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.base.errors import Unsupported
from unistack_aot.onnx_in import import_model

STEPS, ROWS, INPUTS, UNITS = 5, 3, 4, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTHS = np.array([5, 2, 3], np.int32)


def operands(op: str, directions: int = 1, given: str = "bsh", lengths: bool = False) -> list[Any]:
    """Data, weights and, as `given` says, bias, states (h, and c of an LSTM), peepholes (p)."""
    width = GATES[op] * UNITS
    found: list[Any] = [
        draw(STEPS, ROWS, INPUTS),
        draw(directions, width, INPUTS, seed=1) * 0.5,
        draw(directions, width, UNITS, seed=2) * 0.5,
        draw(directions, 2 * width, seed=3) * 0.5 if "b" in given else None,
        LENGTHS if lengths else None,
        draw(directions, ROWS, UNITS, seed=4) if "h" in given else None,
    ]
    if op == "LSTM":
        found.append(draw(directions, ROWS, UNITS, seed=5) if "h" in given else None)
        found.append(draw(directions, 3 * UNITS, seed=6) if "p" in given else None)
    while found[-1] is None:
        found.pop()
    return found


def check(op: str, inputs: Sequence[Any], opset: int = 14, **attributes: Any) -> None:
    """Compare every output."""
    outputs = 3 if op == "LSTM" else 2
    check_node(
        op,
        inputs,
        opset,
        known=[1, 2, 3],
        outputs=outputs,
        tolerance=2e-5,
        hidden_size=UNITS,
        **attributes,
    )


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [False, True])
def test_directions_and_lengths(op: str, direction: str, lengths: bool) -> None:
    directions = 2 if direction == "bidirectional" else 1
    check(op, operands(op, directions, lengths=lengths), direction=direction)


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("given", ["", "b", "h"])
def test_optional_operands(op: str, given: str) -> None:
    check(op, operands(op, given=given), opset=7)


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("given", ["", "bh"])
def test_gru_with_reset_after_the_product(lengths: bool, given: str) -> None:
    check("GRU", operands("GRU", given=given, lengths=lengths), linear_before_reset=1)
    inputs = operands("GRU", 2, given, lengths)
    check("GRU", inputs, linear_before_reset=1, direction="bidirectional")


def test_lstm_with_peepholes_and_coupled_gates() -> None:
    check("LSTM", operands("LSTM", given="bhp"))
    check("LSTM", operands("LSTM", given="bhp", lengths=True), direction="reverse")
    check("LSTM", operands("LSTM"), input_forget=1)


@pytest.mark.parametrize("op", list(GATES))
def test_clip(op: str) -> None:
    check(op, operands(op), clip=0.4)


@pytest.mark.parametrize(
    "names, alphas, betas",
    [
        (["Relu"], [], []),
        (["Affine"], [0.5], [0.25]),
        (["LeakyRelu"], [0.1], []),
        (["ThresholdedRelu"], [0.3], []),
        (["ScaledTanh"], [0.8], [1.2]),
        (["HardSigmoid"], [0.3], [0.4]),
        (["Elu"], [0.7], []),
        (["Softsign"], [], []),
        (["Softplus"], [], []),
    ],
)
def test_activations(names: list[str], alphas: list[float], betas: list[float]) -> None:
    attributes: dict[str, Any] = {"activations": names}
    if alphas:
        attributes["activation_alpha"] = alphas
    if betas:
        attributes["activation_beta"] = betas
    check("RNN", operands("RNN"), **attributes)


def test_activations_of_a_gru_and_an_lstm() -> None:
    check("GRU", operands("GRU"), activations=["HardSigmoid", "Softsign"])
    names = ["Sigmoid", "Relu", "Tanh", "HardSigmoid", "Tanh", "Softsign"]
    check("LSTM", operands("LSTM", 2), direction="bidirectional", activations=names)


@pytest.mark.parametrize("op", list(GATES))
def test_batch_first_layout_is_the_time_first_one_transposed(op: str) -> None:
    """onnxruntime refuses layout=1, so the time-first import is the reference."""
    inputs = operands(op, lengths=True)
    swapped = [
        None if a is None else np.swapaxes(a, 0, 1).copy() if k in (0, 5, 6) else a
        for k, a in enumerate(inputs)
    ]
    count = 3 if op == "LSTM" else 2
    found: list[list[Any]] = []
    for layout, given in enumerate((inputs, swapped)):
        model = node_model(op, given, 14, [1, 2, 3], count, hidden_size=UNITS, layout=layout)
        values = evaluate_graph(import_model(model).graph, feeds_of(given, [1, 2, 3]))
        found.append(list(values.values()))
    np.testing.assert_array_equal(found[1][0], found[0][0].transpose(2, 0, 1, 3))
    for ours, theirs in zip(found[1][1:], found[0][1:], strict=True):
        np.testing.assert_array_equal(ours, theirs.transpose(1, 0, 2))


def test_symbolic_time_and_batch() -> None:
    imported = check_node(
        "LSTM",
        operands("LSTM"),
        14,
        known=[1, 2, 3],
        outputs=3,
        dims={0: ("T", "B", INPUTS), 5: (1, "B", UNITS), 6: (1, "B", UNITS)},
        tolerance=2e-5,
        hidden_size=UNITS,
    )
    kinds = [str(node.tensor) for node in imported.graph.results]
    assert kinds == [f"f32[T, 1, B, {UNITS}]", f"f32[1, B, {UNITS}]", f"f32[1, B, {UNITS}]"]


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"RNN\(14\) with activation Gelu"):
        check("RNN", operands("RNN"), activations=["Gelu"])


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_cum_sum(axis: int, exclusive: int, reverse: int, dtype: str) -> None:
    inputs = [draw(3, 4, dtype=dtype), np.array(axis)]
    tolerance = 1e-6 if dtype == "float32" else 0.0
    check_node(
        "CumSum",
        inputs,
        14,
        known=[1],
        tolerance=tolerance,
        exclusive=exclusive,
        reverse=reverse,
    )
