"""Fixed extents of 0: results without elements, sums of nothing, and what cannot be resized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import unistack_aot as ua
from tests.models.test_special_values import model, ran

CASES: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any], tuple[int, ...]]] = [
    ("Relu", ((0, 3),), {}, (0, 3)),
    ("Transpose", ((0, 3),), {}, (3, 0)),
    ("MatMul", ((0, 3), (3, 4)), {}, (0, 4)),
    ("MatMul", ((2, 0), (0, 4)), {}, (2, 4)),
    ("Concat", ((0, 3), (0, 3)), {"axis": 0}, (0, 3)),
    ("Concat", ((0, 3), (2, 3)), {"axis": 0}, (2, 3)),
    ("ReduceMax", ((0, 3),), {"axes": [1]}, (0, 1)),
    ("Softmax", ((3, 0),), {}, (3, 0)),
    ("Conv", ((0, 3, 8, 8), (4, 3, 3, 3)), {}, (0, 4, 6, 6)),
]


def single(op: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any]):
    feeds = {f"x{k}": np.ones(shape, np.float32) for k, shape in enumerate(shapes)}
    node = helper.make_node(op, list(feeds), ["y"], "node", **attributes)
    return model([node], feeds, "y", {}), feeds


@pytest.mark.parametrize(("op", "shapes", "attributes", "want"), CASES)
def test_results_without_elements(op, shapes, attributes, want, tmp_path: Path) -> None:
    proto, feeds = single(op, shapes, attributes)
    ua.compile_model(proto, tmp_path / "m.pkg")
    found = ua.load(tmp_path / "m.pkg", device="cpu").run(feeds)["y"]
    assert found.shape == want
    assert op != "MatMul" or (found == 0).all()
    assert ua.check(proto, tmp_path / "m.pkg")


@pytest.mark.parametrize("case", [2, 3], ids=["rows", "depth"])
def test_on_the_emulator(case: int, tmp_path: Path) -> None:
    op, shapes, attributes, want = CASES[case]
    proto, feeds = single(op, shapes, attributes)
    found = ran(proto, feeds, "emulator:sm_90", tmp_path)
    assert found.shape == want and (found == 0).all()


def resize(extent: int, mode: str, **given: list[float]):
    feeds = {"x": np.ones((1, 2, extent, 4), np.float32)}
    ((name, values),) = given.items()
    weight = np.asarray(values, np.int64 if name == "sizes" else np.float32)
    inputs = ["x", "", "", "sizes"] if name == "sizes" else ["x", "", "scales"]
    node = helper.make_node("Resize", inputs, ["y"], "node", mode=mode)
    return model([node], feeds, "y", {name: weight}), feeds


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("extent", "given"),
    [
        (3, {"sizes": [1, 2, 0, 4]}),
        (3, {"scales": [1, 1, 0.1, 1]}),
        (0, {"sizes": [1, 2, 0, 4]}),
        (0, {"scales": [1, 1, 2, 1]}),
    ],
)
def test_resizing_to_nothing(extent: int, given: dict[str, Any], mode: str, tmp_path: Path) -> None:
    proto, feeds = resize(extent, mode, **given)
    ua.compile_model(proto, tmp_path / "m.pkg")
    found = ua.load(tmp_path / "m.pkg", device="cpu").run(feeds)["y"]
    assert found.shape == (1, 2, 0, 4)


def test_resizing_nothing_to_something_is_refused() -> None:
    proto, _ = resize(0, "linear", sizes=[1, 2, 3, 4])
    with pytest.raises(ua.UnistackError, match=r"which has no elements, to \(1, 2, 3, 4\)"):
        ua.compile_model(proto, "never.pkg")


def test_resizing_by_zero_is_refused() -> None:
    proto, _ = resize(3, "linear", scales=[1, 1, 0, 1])
    with pytest.raises(ua.UnistackError, match=r"Resize\(17\) by 0\.0"):
        ua.compile_model(proto, "never.pkg")
