"""Generated CPU kernels against numpy: every sample of every op, and kernels that once were wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.build.cpu_graphs import FAMILIES, LEVELS, levels_here, run_on_cpu, sample_graph
from tests.ops.single_node import expected
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Input
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.dtypes import f16, i64
from unistack_aot.base.errors import MissingTool, UnistackError
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.ops.scatter import ScatterElements
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime.cpu import check_sizes
from unistack_aot.runtime.layout import lay_out
from unistack_aot.runtime.session import load
from unistack_aot.schedule.panels import PANEL, register_tile
from unistack_aot.targets.cpu import build

Array = np.ndarray[Any, Any]
# Rounding differs by the order of sums and by exp, erf and pow of another library.
TOLERANCE = {"float64": 1e-11, "float32": 5e-5, "float16": 4e-3, "bfloat16": 4e-2}


QUICK = ("core", "gather", "order", "reindex")


@pytest.mark.parametrize(
    "family", [f if f in QUICK else pytest.param(f, marks=pytest.mark.slow) for f in FAMILIES]
)
@pytest.mark.parametrize(
    "level", [n if n == "x86-64-v3" else pytest.param(n, marks=pytest.mark.slow) for n in LEVELS]
)
def test_samples(level: str, family: str, tmp_path: Path) -> None:
    if level not in levels_here():
        pytest.skip(f"this processor does not run {level}")
    given = sample_graph(family)
    found = run_on_cpu(given.graph, given.feeds, tmp_path, target=f"cpu:{level}")
    wrong = {n: difference(found[n], want) for n, want in given.expected.items()}
    assert not any(wrong.values()), {n: reason for n, reason in wrong.items() if reason}


def difference(got: Array, want: Array) -> str:
    """How two arrays differ beyond rounding; empty if they do not."""
    allowed = TOLERANCE.get(want.dtype.name, 0.0)
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    a, b = (np.asarray(x, np.float64) for x in (got, want))
    if np.allclose(a, b, rtol=allowed, atol=allowed, equal_nan=True):
        return ""
    finite = np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), a != b)
    return f"off by {np.max(finite)}, {np.sum(~np.isclose(a, b, allowed, allowed, equal_nan=True))} of {a.size}"


def check_model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[Array, tuple[str | int, ...]]],
    outputs: tuple[str, ...],
    folder: Path,
    weights: dict[str, Array] | None = None,
    dims: dict[str, tuple[int, int]] | None = None,
) -> None:
    """A small ONNX model compiled for the CPU, run with poisoned memory, against onnxruntime.

    Inputs are an array and the declared shape by name.
    """
    kind = helper.np_dtype_to_tensor_dtype
    values = [
        helper.make_tensor_value_info(name, kind(array.dtype), shape)
        for name, (array, shape) in inputs.items()
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "edge", values, results, stored)
    opsets = [helper.make_opsetid("", 18)]
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8)
    )
    package = folder / "edge.pkg"
    compile_model(model, package, targets=(f"cpu:{levels_here()[-1]}",), dims=dims)
    feeds = {name: array for name, (array, _) in inputs.items()}
    found = load(package, "cpu", threads=2, poison=True).run(feeds)
    for name, want in zip(outputs, expected(model, feeds), strict=True):
        assert not difference(found[name], want), (name, difference(found[name], want))


def normal(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def test_empty_axes(tmp_path: Path) -> None:
    """Zero keys, zero rows: sums are 0, softmax over nothing is nothing, concatenation adds nothing."""
    nodes = [
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "q kt", "scores"),
        node("Softmax", "scores", "weights", axis=-1),
        node("MatMul", "weights v", "mixed"),
        node("Concat", "k q", "joined", axis=1),
        node("ReduceSum", "k", "total", keepdims=0),
        node("Exp", "k", "raised"),
    ]
    empty = np.zeros((2, 0, 8), np.float32)
    inputs = {
        "q": (normal(2, 5, 8), (2, "rows", 8)),
        "k": (empty, (2, "keys", 8)),
        "v": (empty, (2, "keys", 8)),
    }
    outputs = ("mixed", "joined", "total", "raised", "weights")
    check_model(nodes, inputs, outputs, tmp_path, dims={"keys": (0, 9), "rows": (1, 9)})


def test_dimensions_called_like_locals(tmp_path: Path) -> None:
    """Names that generated code uses itself, words of C, and names that differ in one sign."""
    shape = ("width", "task", "int", "a.b_c", "a_b.c")
    x = normal(2, 3, 4, 2, 20)
    nodes = [
        node("Transpose", "x", "turned", perm=[4, 2, 0, 1, 3]),
        node("MatMul", "x w", "wide"),
        node("Add", "wide bias", "sum"),
        node("ReduceMax", "x axes", "top", keepdims=0),
    ]
    weights = {"w": normal(20, 19), "bias": normal(19), "axes": np.array([1, 3], np.int64)}
    inputs = {"x": (x, (*shape[:4], 20))}
    check_model(nodes, inputs, ("turned", "sum", "top"), tmp_path, weights)


def test_extreme_literals(tmp_path: Path) -> None:
    """The lowest and highest integers, NaN, infinities and the smallest float come through."""
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    i64 = np.array([low, low + 1, -1, 0, high], np.int64)
    i8 = np.array([-128, -127, -1, 0, 127], np.int8)
    f32 = np.array([np.nan, np.inf, -np.inf, 1e-45, -0.0], np.float32)
    nodes = [
        node("Max", "a low", "top"),
        node("Min", "a high", "bottom"),
        node("Equal", "a low", "lowest"),
        node("Min", "b low8", "bottom8"),
        node("Where", "yes c nan", "chosen"),
        node("Where", "yes inf c", "other"),
        node("Add", "c tiny", "sum"),
    ]
    weights: dict[str, Array] = {
        "low": np.array([low], np.int64),
        "high": np.array([high], np.int64),
        "low8": np.array([-128], np.int8),
        "nan": np.array([np.nan], np.float32),
        "inf": np.array([-np.inf], np.float32),
        "tiny": np.array([1e-45], np.float32),
        "yes": np.array([True, False, True, False, True]),
    }
    inputs = {"a": (i64, (5,)), "b": (i8, (5,)), "c": (f32, (5,))}
    outputs = ("top", "bottom", "lowest", "bottom8", "chosen", "other", "sum")
    check_model(nodes, inputs, outputs, tmp_path, weights)


def test_integer_overflow_wraps(tmp_path: Path) -> None:
    """Sums, differences, products and negations of 32- and 64-bit integers wrap, as in onnxruntime."""
    top32, top64 = np.iinfo(np.int32).max, np.iinfo(np.int64).max
    i32 = np.array([top32, -top32 - 1, 65536, -3], np.int32)
    i64 = np.array([top64, -top64 - 1, 1 << 40, -3], np.int64)
    nodes = [
        node("Add", "a a", "sum"),
        node("Mul", "a a", "square"),
        node("Sub", "b one", "less"),
        node("Mul", "b b", "product"),
        node("Neg", "b", "negated"),
    ]
    inputs = {"a": (i32, (4,)), "b": (i64, (4,))}
    outputs = ("sum", "square", "less", "product", "negated")
    check_model(nodes, inputs, outputs, tmp_path, {"one": np.array([1], np.int64)})


def test_blocks_of_channels_that_do_not_fill(tmp_path: Path) -> None:
    """36 channels in blocks of 16: lanes of the last block, zero padding, halos of a window."""
    nodes = [
        node("Conv", "x a", "y", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Conv", "y b", "z", pads=[2, 2, 2, 2], group=36),
        node("GlobalAveragePool", "z", "mean"),
        node("Conv", "z c", "out"),
    ]
    weights = {"a": normal(36, 12, 3, 3), "b": normal(36, 1, 5, 5), "c": normal(20, 36, 1, 1)}
    inputs = {"x": (normal(2, 12, 9, 11), ("n", 12, "rows", 11))}
    check_model(nodes, inputs, ("mean", "out"), tmp_path, weights)


def test_narrow_floats_through_a_network(tmp_path: Path) -> None:
    """f16 products, sums, softmax and windows: stored narrow, computed wide."""
    nodes = [
        node("MatMul", "x w", "scores"),
        node("Softmax", "scores", "weights", axis=-1),
        node("ReduceMean", "weights axes", "mean", keepdims=1),
        node("Conv", "image filter", "features", pads=[1, 1, 1, 1]),
        node("MaxPool", "features", "pooled", kernel_shape=[2, 2], strides=[2, 2]),
        node("Cast", "pooled", "some", to=onnx.TensorProto.BOOL),
    ]
    half = "float16"
    weights: dict[str, Array] = {
        "w": normal(24, 17, dtype=half),
        "filter": normal(9, 8, 3, 3, dtype=half),
        "axes": np.array([1], np.int64),
    }
    x, image = normal(3, 24, dtype=half), normal(1, 8, 6, 6, dtype=half)
    inputs = {"x": (x, (3, 24)), "image": (image, (1, 8, 6, 6))}
    outputs = ("weights", "mean", "pooled", "some")
    check_model(nodes, inputs, outputs, tmp_path, weights)


def test_narrow_updates_meet_old_values(tmp_path: Path) -> None:
    """Sums, products and extremes of f16 in memory; onnxruntime has no such sums."""
    types = (TensorType(f16, (3, 4)), TensorType(i64, (2, 4)), TensorType(f16, (2, 4)))
    args = tuple(Node(Input(f"x{k}", kind)) for k, kind in enumerate(types))
    arrays = (normal(3, 4).astype(np.float16), np.array([[0, 0, 2, 1], [0, 1, 2, 1]], np.int64))
    feeds = dict(zip(("x0", "x1", "x2"), (*arrays, normal(2, 4).astype(np.float16)), strict=True))
    ops = {name: ScatterElements(0, name) for name in ("add", "mul", "min", "max", "set")}
    graph = Graph("updates", args, tuple((name, Node(op, args)) for name, op in ops.items()))
    found = run_on_cpu(graph, feeds, tmp_path)
    for name, op in ops.items():
        assert not difference(found[name], op.reference(*feeds.values())), name


def test_poison_shows_what_nobody_wrote(tmp_path: Path) -> None:
    """The hook itself: outputs of a poisoned session start as NaN."""
    nodes = [node("Exp", "x", "y")]
    check_model(nodes, {"x": (normal(3), (3,))}, ("y",), tmp_path)
    session = load(tmp_path / "edge.pkg", "cpu", poison=True)
    plan = session._plan(((3,),))
    (port,) = plan._outputs
    assert np.isnan(plan._fresh(port)).all()


def test_a_buffer_beyond_32_bits_is_refused(tmp_path: Path) -> None:
    """Offsets inside tiles are 32-bit numbers."""
    check_model([node("Exp", "x", "y")], {"x": (normal(3), ("n",))}, ("y",), tmp_path)
    session = load(tmp_path / "edge.pkg", "cpu")
    layout = lay_out(session.variant, {session.package.manifest.dims[0].name: 1 << 31})
    with pytest.raises(UnistackError, match="would have 2147483648 elements"):
        check_sizes(session.variant, layout)


@pytest.mark.parametrize("level", LEVELS)
def test_the_scheduler_and_the_header_mean_the_same_tile(level: str) -> None:
    """Register tiles: worked out from the map of a level, and written down in its header."""
    isa, tile = build.LEVELS[level], register_tile(machine_for_arch(level))
    try:
        tool = build.compiler(isa)
    except MissingTool:
        pytest.skip(f"no compiler for {level}")
    text = (
        '#include "ua/tile.h"\n'
        f"static_assert(ua::kPanel == {PANEL});\n"
        f"static_assert(ua::kTileRows == {tile.rows} && ua::kTilePanels == {tile.panels});\n"
    )
    include = f"-I{build.INCLUDE}"
    flags = (
        "-std=c++17",
        *build.level_flags(tool, isa),
        include,
        "-fsyntax-only",
        "-x",
        "c++",
        "-",
    )
    done = subprocess.run(
        [*tool.command, *flags], input=text, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
