"""Forms of contractions and windows that the CPU target computes in its own way, against float64 or onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.build.cpu_graphs import levels_here
from unistack_aot.artifact.reader import open_package
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.winograd import FORMS, Form, recovered, transformed
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime.session import load
from unistack_aot.schedule.candidates import named
from unistack_aot.schedule.panel_blocks import Extents, choose_blocks
from unistack_aot.targets.cpu.source import kernel_text

Array = np.ndarray[Any, Any]
F32 = TensorProto.FLOAT


class Forms:
    """An ONNX graph of independent nodes over shared inputs."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(7)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: dict[str, Array] = {}
        self.outputs: list[Any] = []

    def given(self, name: str, *shape: int) -> str:
        """An input of this shape, standard normal."""
        self.inputs[name] = self.random.standard_normal(shape, np.float32)
        return name

    def weight(self, *shape: int) -> str:
        """A constant whose products keep the scale of their operand."""
        name = f"w{len(self.weights)}"
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        value = self.random.standard_normal(shape, np.float32) * np.float32(scale)
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def add(self, op: str, *args: str, **attributes: Any) -> str:
        """A node whose result is an output."""
        name = f"y{len(self.nodes)}_{op}"
        self.nodes.append(helper.make_node(op, list(args), [name], **attributes))
        self.outputs.append(helper.make_tensor_value_info(name, F32, None))
        return name

    def check(self, folder: Path, tolerance: float = 2e-6) -> None:
        """Compile for every level of this machine, run with two threads, compare with onnxruntime.

        Errors are relative to each output's largest element.
        """
        ins = [helper.make_tensor_value_info(n, F32, a.shape) for n, a in self.inputs.items()]
        graph = helper.make_graph(self.nodes, "forms", ins, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        reference = onnxruntime.InferenceSession(model.SerializeToString(), options)
        wanted = reference.run(None, self.inputs)
        for level in levels_here():
            compile_model(model, folder / "forms.pkg", targets=(f"cpu:{level}",))
            found = load(folder / "forms.pkg", device="cpu", threads=2).run(self.inputs)
            for (name, got), want in zip(found.items(), wanted, strict=True):
                assert got.shape == want.shape, name
                error = np.max(np.abs(got - want)) / np.max(np.abs(want))
                assert error < tolerance, (level, name, error)


def test_windows(tmp_path: Path) -> None:
    forms = Forms()
    wide, odd = forms.given("wide", 1, 20, 28, 32), forms.given("odd", 2, 9, 13, 11)
    forms.add("Conv", wide, forms.weight(24, 20, 3, 3), pads=[1, 1, 1, 1])
    forms.add("Conv", wide, forms.weight(16, 20, 3, 3), pads=[1, 1, 1, 1], dilations=[1, 1])
    forms.add("Conv", wide, forms.weight(24, 20, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    forms.add("Conv", wide, forms.weight(20, 1, 3, 3), pads=[1, 1, 1, 1], group=20)
    forms.add("Conv", wide, forms.weight(20, 1, 5, 5), pads=[2] * 4, strides=[2, 2], group=20)
    forms.add("Conv", wide, forms.weight(20, 1, 3, 3), pads=[2] * 4, dilations=[2, 2], group=20)
    forms.add("Conv", odd, forms.weight(17, 9, 3, 3), pads=[1, 1, 1, 1])
    forms.add("MaxPool", wide, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    forms.add("MaxPool", odd, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 1, 1, 0], ceil_mode=1)
    forms.add("AveragePool", odd, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    forms.add("GlobalAveragePool", wide)
    forms.check(tmp_path, tolerance=1e-5)


WINDOWS = """
kernel windows(
    x: f32[1, 32, 9, 11] far block(1, 16), w: f32[32, 1, 3, 3] far block(0, 16)
) -> y: f32[1, 32, 7, 9] far block(1, 16) {
  for c in 2 role=grid, i in 7 role=grid, j in 9 role=seq, l in 16 role=vector {
    s = fold sum over m in 3, n in 3 of x[0, 16*c + l, i + m, j + n] * w[16*c + l, 0, m, PLACE]
    y[0, 16*c + l, i, j] = s
  }
}
"""


@pytest.mark.parametrize(("place", "shared"), [("n", True), ("2 - n", False)])
def test_pixels_of_a_row_share_weights_that_lie_tap_by_tap(place: str, shared: bool) -> None:
    kernel = parse_kernel(WINDOWS.replace("PLACE", place))
    text = kernel_text("windows", kernel, {}, ()).definition
    call = "ua::depthwise_row(x + (c * 1584 + i * 176), 16, w + (c * 144), shift, 9, 9, done);"
    assert (call in text) == shared
    assert ("0, 16, 32, 176, 192, 208, 352, 368, 384" in text) == shared


def test_tokens_of_patches_are_no_channels(tmp_path: Path) -> None:
    """A convolution's blocks of channels end where a transposition makes its pixels rows of a product."""
    forms = Forms()
    patches = helper.make_node(
        "Conv", [forms.given("x", 1, 3, 32, 32), "kernel"], ["p"], strides=[4, 4]
    )
    turned = [
        patches,
        helper.make_node("Reshape", ["p", "shape"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["tokens"], perm=[0, 2, 1]),
    ]
    forms.nodes += turned
    kernel = forms.random.standard_normal((48, 3, 4, 4), np.float32)
    forms.weights += [numpy_helper.from_array(kernel, "kernel")]
    forms.weights += [numpy_helper.from_array(np.array([1, 48, 64]), "shape")]
    forms.add("MatMul", "tokens", forms.weight(48, 40))
    forms.add("Softmax", "tokens", axis=-1)
    forms.check(tmp_path, tolerance=4e-6)
    session = load(tmp_path / "forms.pkg", device="cpu", threads=1)
    (records,) = session.package.document("lock.json")["decisions"].values()
    tiled = [r for r in records if r["what"] in ("blocks", "algorithm")]
    assert len(tiled) == 2, "the convolution and the product"


def test_products_that_no_tile_takes(tmp_path: Path) -> None:
    """One step of depth, or few channels of an image: copies of the operands would not help, plain loops run."""
    forms = Forms()
    column, image = forms.given("column", 2, 5, 1), forms.given("image", 1, 32, 8, 8)
    forms.add("MatMul", column, forms.weight(1, 4))
    forms.add("Conv", image, forms.weight(2, 32, 1, 1))
    forms.check(tmp_path)


@pytest.mark.parametrize("first, last, tiled", [(32, 64, True), (16, 40, False), (8, 40, False)])
def test_windows_over_some_channels(first: int, last: int, tiled: bool, tmp_path: Path) -> None:
    """A slice in whole blocks of channels is read where it lies, in tiles; other slices as before."""
    forms = Forms()
    image, ends = forms.given("image", 1, 16, 12, 12), np.asarray([[first], [last], [1]])
    for name, value in zip(("first", "last", "axis"), ends, strict=True):
        forms.weights.append(numpy_helper.from_array(value, name))
    wide = forms.add("Conv", image, forms.weight(64, 16, 3, 3), pads=[1] * 4)
    forms.nodes.append(helper.make_node("Slice", [wide, "first", "last", "axis"], ["part"]))
    forms.outputs.clear()
    forms.add("Conv", "part", forms.weight(32, last - first, 3, 3), pads=[1] * 4)
    forms.add("Conv", "part", forms.weight(32, last - first, 3, 3), pads=[1] * 4, strides=[2, 2])
    forms.check(tmp_path)
    level = levels_here()[-1]
    decisions = open_package(tmp_path / "forms.pkg").document("lock.json")["decisions"]
    ways = [d for d in decisions[f"cpu:{level}"] if d["what"] in ("blocks", "algorithm")]
    assert len(ways) == (3 if tiled else 1)


def test_slices_of_a_large_constant(tmp_path: Path) -> None:
    """A constant of more than a mebibyte with several readers stays one array: each product packs its part."""
    forms = Forms()
    x, whole = forms.given("x", 5, 512), forms.weight(1024, 320)
    bounds = {"none": 0, "half": 512, "all": 1024, "left": 7, "right": 270}
    forms.weights += [numpy_helper.from_array(np.array([v]), k) for k, v in bounds.items()]
    forms.weights += [numpy_helper.from_array(np.array([k]), f"axis{k}") for k in (0, 1)]

    def part(first: str, last: str, axis: int) -> str:
        name = f"{first}_{last}"
        forms.nodes.append(helper.make_node("Slice", [whole, first, last, f"axis{axis}"], [name]))
        return name

    forms.add("MatMul", x, part("none", "half", 0))
    forms.add("MatMul", x, part("half", "all", 0))
    forms.add("MatMul", forms.given("deep", 5, 1024), part("left", "right", 1))
    forms.check(tmp_path)
    session = load(tmp_path / "forms.pkg", device="cpu", threads=1)
    launches = session.package.manifest.variants[0].launches
    assert len(launches) == 3, "nothing is packed at run time"


@pytest.mark.parametrize("units", [128, 48, 20])
def test_recurrences(units: int, tmp_path: Path) -> None:
    """Units in blocks of 64 and of 16, and a number that no block divides; rows that end early."""
    forms = Forms()
    x = forms.given("x", 5, 3, 7)
    forms.weights.append(numpy_helper.from_array(np.array([5, 2, 4], np.int32), "lengths"))
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        wide = (2, gates * units)
        given = (
            x,
            forms.weight(*wide, 7),
            forms.weight(*wide, units),
            forms.weight(2, 2 * wide[1]),
        )
        for lengths in ("", "lengths"):
            forms.add(op, *given, lengths, hidden_size=units, direction="bidirectional")
    forms.add("GRU", x, *(forms.weight(1, 3 * units, n) for n in (7, units)), hidden_size=units)
    forms.check(tmp_path, tolerance=4e-6)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_transformed_weights_come_back(form: Form) -> None:
    weights = np.random.default_rng(1).standard_normal((9, 2, 5, 16))
    assert np.allclose(recovered(transformed(weights, form), form), weights, atol=1e-6)


@pytest.mark.parametrize(
    ("extents", "by_rows"),
    [
        (Extents(3136, 64, 576, 1, 48, 9, 1), True),
        (Extents(49, 512, 4608, 1, 48, 9, 1), False),
        (Extents(128, 3072, 768, 1, 768, 1, 1), False),
        (Extents(1, 1000, 2048, 1, 2048, 1, 1), False),
        (Extents(128, 128, 64, 12, 64, 1, 1), True),
    ],
)
def test_blocks_stay_in_their_caches(extents: Extents, by_rows: bool) -> None:
    machine = machine_for_arch("x86-64-v3")
    blocks = choose_blocks(extents, machine)
    depth = blocks.depth_block or extents.depth
    assert depth * 16 * 4 <= machine.capacity("l1").value * 0.6
    assert blocks.row_block * depth // extents.taps * 4 <= machine.capacity("l2").value // 2
    assert depth % extents.run == 0 or extents.run == extents.depth
    tasks = -(-extents.rows // (blocks.task_rows or extents.rows)) * -(
        -extents.panels // blocks.task_panels
    )
    assert extents.batch * tasks <= 2 * max(machine.parallel_units, extents.batch)
    assert (blocks.task_panels == extents.panels) is by_rows
    assert f" {depth} deep" in named(blocks, extents)


@pytest.mark.parametrize(
    ("side", "chosen", "units"), [(14, "F(2x2", 8), (28, "F(4x4", 150), (9, None, 8)]
)
def test_convolutions_by_fewer_products(
    side: int, chosen: str | None, units: int, tmp_path: Path
) -> None:
    """Where a form is chosen its error stays below what its record says; "direct" turns it off."""
    random = np.random.default_rng(side)
    weight = random.standard_normal((48, 40, 3, 3)).astype(np.float32)
    x = random.standard_normal((1, 40, side, side)) * 10 ** random.uniform(-4, 4, (40, side, side))
    x = x.astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph(
        [node],
        "conv",
        [helper.make_tensor_value_info("x", F32, x.shape)],
        [helper.make_tensor_value_info("y", F32, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    truth, scale = (windows(f(x[0]), f(weight)) for f in (np.float64, lambda a: abs(np.float64(a))))
    for convolution, most in (("fast", units), ("direct", 8)):
        package = tmp_path / f"{convolution}.pkg"
        target = f"cpu:{levels_here()[-1]}"
        compile_model(model, package, targets=(target,), convolution=convolution)
        session = load(package, device="cpu", threads=2)
        error = np.abs(session.run({"x": x})["y"][0] - truth) / (2.0**-23 * scale)
        assert error.max() <= most, (convolution, error.max())
        records = session.package.document("lock.json")["decisions"][target]
        found = [r["chosen"].split(", ")[0] for r in records if r["what"] == "algorithm"]
        assert found == ([chosen] if chosen and convolution == "fast" else [])
        assert f"convolution={convolution}" in session.package.manifest.options


def test_an_infinity_stays_in_its_tile(tmp_path: Path) -> None:
    """As docs/winograd.md says: pixel 13 is read by the tile of outputs 12 to 15 alone; direct sums are exact."""
    forms = Forms()
    forms.add("Conv", forms.given("x", 1, 40, 28, 28), forms.weight(48, 40, 3, 3), pads=[1] * 4)
    forms.inputs["x"][0, 0, 13, 13] = np.inf
    ins = [helper.make_tensor_value_info("x", F32, (1, 40, 28, 28))]
    graph = helper.make_graph(forms.nodes, "conv", ins, forms.outputs, forms.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    finite = {}
    for convolution in ("fast", "direct"):
        package = tmp_path / f"{convolution}.pkg"
        target = f"cpu:{levels_here()[-1]}"
        compile_model(model, package, targets=(target,), convolution=convolution)
        (result,) = load(package, device="cpu", threads=1).run(forms.inputs).values()
        finite[convolution] = np.isfinite(result[0])
    rows = np.arange(28)
    window, tile = abs(rows - 13) <= 1, rows // 4 == 3
    assert np.array_equal(
        finite["direct"], np.broadcast_to(~np.outer(window, window), (48, 28, 28))
    )
    assert finite["fast"][:, ~np.outer(tile, tile)].all()
    assert not finite["fast"][:, np.outer(window, window)].any()


def windows(x: Array, weight: Array) -> Array:
    """A 3x3 convolution with padding 1, as the sum of its definition."""
    side = x.shape[-1]
    x = np.pad(x, [(0, 0), (1, 1), (1, 1)])
    taps = [x[:, i : i + side, j : j + side] for i in range(3) for j in range(3)]
    return np.einsum("oct,tcyx->oyx", weight.reshape(*weight.shape[:2], 9), np.stack(taps))


def test_inputs_are_read_where_they_lie(tmp_path: Path) -> None:
    forms = Forms()
    given = forms.given("x", 3, 40)
    forms.add("MatMul", given, forms.weight(40, 24))
    forms.add("ReduceSum", given, keepdims=0)
    forms.add("Softmax", given, axis=-1)
    room = np.zeros(3 * 40 + 1, np.float32)
    odd = room[1:].reshape(3, 40)
    odd[...] = forms.inputs["x"]
    forms.inputs["x"] = odd
    forms.check(tmp_path)
    buffers = load(tmp_path / "forms.pkg", device="cpu").package.manifest.variants[0].buffers
    assert {b.alignment for b in buffers if b.kind in ("input", "output")} == {4}
