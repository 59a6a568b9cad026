"""ONNX's Attention: queries that see no key, heads that are declared twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.ops.single_node import draw, feeds_of, node_model
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.base.errors import IllTyped
from unistack_aot.onnx_in import import_model

Q, K, V = draw(1, 2, 3, 4, seed=1), draw(1, 2, 3, 4, seed=2), draw(1, 2, 3, 4, seed=3)


def defined(shown: NDArray[Any]) -> NDArray[Any]:
    """softmax(q k' / 2) v over the keys that are shown, 0 where none is: the definition, by loops."""
    out = np.zeros_like(V)
    shown = np.broadcast_to(shown, (1, 2, 3, 3))
    for head in range(2):
        for row in range(3):
            keys = np.flatnonzero(shown[0, head, row])
            if keys.size:
                weights = np.exp(K[0, head, keys] @ Q[0, head, row] / 2)
                out[0, head, row] = weights @ V[0, head, keys] / weights.sum()
    return out


def computed(mask: NDArray[Any], **attributes: Any) -> NDArray[Any]:
    model = node_model("Attention", [Q, K, V, mask], 23, **attributes)
    return evaluate_graph(import_model(model).graph, feeds_of([Q, K, V, mask], ()))["out0"]


LOWER = np.tril(np.ones((3, 3), bool))
MASKS = {
    "a row": np.array([[True, True, False], [False] * 3, [True] * 3]),
    "a row below the diagonal": np.array([[False, True, True], [True] * 3, [True] * 3]),
    "of heads": np.array([[[True] * 3] * 3, [[False] * 3] * 3]),
    "all": np.zeros((1, 1, 1, 3), bool),
    "one key each": np.array([[True], [False], [True]]),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_queries_that_see_nothing_give_zero(name: str, causal: int) -> None:
    mask = MASKS[name]
    want = defined(mask & LOWER if causal else mask)
    additive = np.where(mask, 0, -np.inf).astype(np.float32)
    for given in (mask, additive):
        np.testing.assert_allclose(computed(given, is_causal=causal), want, 1e-5, 1e-6)


def test_heads_that_contradict_the_shape() -> None:
    mask = MASKS["a row"]
    computed(mask, q_num_heads=2, kv_num_heads=2)
    with pytest.raises(IllTyped, match="4 heads of f32"):
        computed(mask, q_num_heads=4)
