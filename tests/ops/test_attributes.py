"""Attributes that an importer knows nothing of are refused: silence would be a wrong result."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.ops.single_node import check_node, draw, node_model
from unistack_aot.aicf.node import Node
from unistack_aot.base.errors import Unsupported
from unistack_aot.onnx_in import import_model
from unistack_aot.ops.onnx import IMPORTERS, OnnxCall

X = draw(1, 2, 5, 4)
REFUSED: dict[str, tuple[list[Any], int, dict[str, Any], str]] = {
    "Attention": ([X, X, X], 25, {"left_window_size": 1}, "with left_window_size = 1"),
    "SpaceToDepth": ([X[..., :4, :]], 28, {"blocksize": 2, "mode": "CRD"}, "with mode = CRD"),
    "LayerNormalization": (
        [X, draw(4)],
        17,
        {"stash_type": int(onnx.TensorProto.FLOAT16)},
        "with stash_type = 10",
    ),
}


@pytest.mark.parametrize("op", REFUSED)
def test_unread_attribute(op: str) -> None:
    inputs, opset, attributes, words = REFUSED[op]
    import_model(node_model(op, inputs, opset, **{**attributes, **usual(op, opset, words)}))
    with pytest.raises(Unsupported, match=words):
        import_model(node_model(op, inputs, opset, **attributes))


def usual(op: str, opset: int, words: str) -> dict[str, Any]:
    """The attribute of the message at its default."""
    name = words.split()[1]
    declared = onnx.defs.get_schema(op, opset).attributes[name].default_value
    return {name: onnx.helper.get_attribute_value(declared)}


def test_what_an_importer_ignores(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(call: OnnxCall) -> Node:
        return call.arg(0)

    def careful(call: OnnxCall) -> Node:
        call.ignore("alpha")
        return call.arg(0)

    model = node_model("LeakyRelu", [X], 17, alpha=0.5)
    monkeypatch.setitem(IMPORTERS, ("", "LeakyRelu"), [(1, careless)])
    with pytest.raises(Unsupported, match=r"with alpha = 0\.5"):
        import_model(model)
    monkeypatch.setitem(IMPORTERS, ("", "LeakyRelu"), [(1, careful)])
    import_model(model)


def test_attributes_that_change_nothing() -> None:
    """Written by exporters where they mean nothing."""
    check_node("Reshape", [X, np.array([10, 4])], 17, known=(1,), allowzero=1)
    check_node(
        "ReduceSum", [X, np.array([1])], 13, known=(1,), noop_with_empty_axes=1, tolerance=1e-6
    )
    check_node("MaxPool", [X], 17, kernel_shape=[2, 2], storage_order=1)
    scale, zero = np.float32(0.1), np.uint8(3)
    check_node("QuantizeLinear", [X, scale, zero], 17, known=(1, 2), axis=0)
