"""Resize and Upsample against onnxruntime: every coordinate and rounding mode, up and down."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.single_node import check_node, draw, ints
from unistack_aot.base.symbolic import text
from unistack_aot.ops.resize import COORDINATES

ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
NOTHING = np.zeros(0, np.float32)


def scales(*factors: float) -> np.ndarray:
    return np.array([1.0, 1.0, *factors], np.float32)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("factors", [(2.0, 3.0), (0.65, 0.5), (1.7, 1.0)])
def test_nearest(coordinates: str, rounding: str, factors: tuple[float, float]) -> None:
    check_node(
        "Resize",
        [draw(1, 2, 5, 6), None, scales(*factors)],
        19 if coordinates == "half_pixel_symmetric" else 13,
        known=[2],
        mode="nearest",
        coordinate_transformation_mode=coordinates,
        nearest_mode=rounding,
    )


@pytest.mark.parametrize("coordinates", [c for c in COORDINATES if c != "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(10, 12), (3, 4), (1, 9), (5, 7)])
def test_interpolation(coordinates: str, mode: str, sizes: tuple[int, int]) -> None:
    check_node(
        "Resize",
        [draw(1, 2, 5, 6), None, None, ints(1, 2, *sizes)],
        19 if coordinates == "half_pixel_symmetric" else 13,
        known=[3],
        tolerance=2e-5,
        mode=mode,
        coordinate_transformation_mode=coordinates,
    )


def test_cubic_without_outside_and_other_coefficient() -> None:
    check_node(
        "Resize",
        [draw(1, 1, 5, 6), None, scales(1.5, 0.7)],
        13,
        known=[2],
        tolerance=2e-5,
        mode="cubic",
        cubic_coeff_a=-0.5,
        exclude_outside=1,
    )


def test_linear_over_one_and_three_axes() -> None:
    check_node(
        "Resize", [draw(1, 2, 5), None, None, ints(1, 2, 8)], 13, [3], 1, None, 1e-5, mode="linear"
    )
    inputs = [draw(1, 2, 3, 4, 5), None, None, ints(1, 2, 6, 5, 4)]
    check_node("Resize", inputs, 13, known=[3], tolerance=1e-5, mode="linear")


def test_opset_11_with_an_empty_roi_and_scales() -> None:
    inputs = [draw(1, 2, 4, 4), NOTHING, NOTHING, ints(1, 2, 8, 6)]
    check_node("Resize", inputs, 11, known=[1, 2, 3], nearest_mode="floor")


def test_axes_and_aspect_ratio() -> None:
    inputs = [draw(1, 2, 5, 6), None, np.array([2.0, 0.5], np.float32)]
    check_node("Resize", inputs, 18, known=[2], axes=[3, 2])
    for policy in ("not_larger", "not_smaller"):
        inputs = [draw(1, 2, 5, 6), None, None, ints(7, 9)]
        check_node("Resize", inputs, 18, known=[3], axes=[2, 3], keep_aspect_ratio_policy=policy)


def test_upsample() -> None:
    check_node("Upsample", [draw(1, 2, 3, 4), scales(2, 3)], 9, known=[1], mode="nearest")
    check_node("Upsample", [draw(1, 2, 3, 4)], 7, mode="nearest", scales=[1.0, 1.0, 1.5, 2.0])
    inputs = [draw(1, 2, 3, 4), scales(2, 2)]
    check_node("Upsample", inputs, 9, known=[1], tolerance=1e-5, mode="linear")


@pytest.mark.parametrize("factors", [(2.0, 1.5), (0.5, 0.5)])
def test_resize_of_opset_10(factors: tuple[float, float]) -> None:
    check_node("Resize", [draw(1, 2, 5, 6), scales(*factors)], 10, known=[1], mode="nearest")


def test_nearest_of_integers() -> None:
    check_node("Resize", [draw(1, 1, 3, 3, dtype="int32"), None, scales(2, 2)], 13, known=[2])


def test_symbolic_extents_and_whole_factors_keep_integer_indices() -> None:
    imported = check_node(
        "Resize",
        [draw(1, 2, 3, 5), NOTHING, scales(2, 2)],
        12,
        known=[1, 2],
        dims={0: ("B", 2, "H", "W")},
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    assert [text(d) for d in imported.graph.results[0].tensor.shape] == ["B", "2", "2*H", "2*W"]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_symbolic_extents_to_fixed_sizes(mode: str) -> None:
    inputs = [draw(1, 2, 3, 5), None, None, ints(1, 2, 4, 4)]
    check_node(
        "Resize", inputs, 13, known=[3], dims={0: (1, 2, "H", "W")}, tolerance=1e-5, mode=mode
    )
