"""Models at the edge of what ONNX allows, and beyond: refused with these words, or compiled right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot import load
from unistack_aot.base.errors import BadModel
from unistack_aot.cli.main import main
from unistack_aot.onnx_in import import_model

F = TensorProto.FLOAT
N = helper.make_node
Shape = Sequence["int | str"]


def value(name: str, shape: Shape = ("n", 4), kind: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: dict[str, Any] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=9)


def relu(shape: Shape = ("n", 4), kind: int = F) -> onnx.ModelProto:
    return model(
        [N("Relu", ["x"], ["y"], "r")], [value("x", shape, kind)], [value("y", shape, kind)]
    )


def function(inputs: list[str], nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """y = F(x) with a local function of that body, which gives b."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    made = helper.make_function("my", "F", inputs, ["b"], nodes, opsets)
    call = N("F", ["x"], ["y"], "call", domain="my")
    return model([call], [value("x")], [value("y")], functions=[made])


def external(**entries: str) -> onnx.ModelProto:
    weight = TensorProto(name="w", data_type=F, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, written in entries.items():
        weight.external_data.add(key=key, value=written)
    made = model([N("Add", ["x", "w"], ["y"], "sum")], [value("x")], [value("y")])
    made.graph.initializer.append(weight)
    return made


def stored(**fields: Any) -> onnx.ModelProto:
    """y = x + w with w as a tensor of those fields."""
    made = model([N("Add", ["x", "w"], ["y"], "sum")], [value("x")], [value("y")])
    made.graph.initializer.append(TensorProto(name="w", data_type=F, **fields))
    return made


IMAGE = [value("x", [1, 1, 6, 6])], [value("y", [1, 1, 3, 3])]
KERNEL = {"w": np.ones((1, 1, 3, 3), np.float32)}


def looped(inputs: list[str], outputs: list[str], given: list[str]) -> onnx.ModelProto:
    """y = Loop(n, "", *given) with a body of those inputs and outputs."""
    kinds = {"i": TensorProto.INT64, "c": TensorProto.BOOL, "go": TensorProto.BOOL}
    results = [value(name, (), kinds.get(name, F)) for name in outputs]
    nodes = [N("Identity", ["c"], ["go"]), N("Relu", [inputs[-1]], ["b"])]
    body = helper.make_graph(
        nodes, "body", [value(name, (), kinds.get(name, F)) for name in inputs], results
    )
    loop = N("Loop", ["n", "", *given], ["y"], "again", body=body)
    return model([loop], [value("n", (), TensorProto.INT64), value("x", ())], [value("y", ())])


def branched() -> onnx.ModelProto:
    """An If whose branches give one and two results."""
    one, two = (
        helper.make_graph([N("Relu", ["x"], ["a"])], "branch", [], [value("a", ())] * count)
        for count in (1, 2)
    )
    choose = N("If", ["c"], ["y"], "choose", then_branch=one, else_branch=two)
    return model([choose], [value("c", (), TensorProto.BOOL), value("x", ())], [value("y", ())])


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "a region that takes more": (
        lambda: looped(["i", "c", "a", "b2"], ["go", "b"], ["x"]),
        "a region takes 4 inputs, its node gives 3\n  at: again",
    ),
    "a body that carries less": (
        lambda: looped(["i", "c", "a"], ["go"], ["x"]),
        "1 operator in m.onnx cannot be compiled\n  'again'  Loop(17) whose body gives 1 results, not the 2 that",
    ),
    "branches of other counts": (
        branched,
        "1 operator in m.onnx cannot be compiled\n  'choose'  If(17) whose branches give 1 and 2 results",
    ),
    "no outputs": (
        lambda: model([], [value("x")], []),
        "the model has no outputs\n  at: m.onnx",
    ),
    "two outputs of one name": (
        lambda: model([N("Relu", ["x"], ["y"])], [value("x")], [value("y"), value("y")]),
        "two outputs are called 'y'\n  at: y",
    ),
    "two inputs of one name": (
        lambda: model([N("Relu", ["x"], ["y"])], [value("x"), value("x")], [value("y")]),
        "two inputs are called 'x'\n  at: x",
    ),
    "an extent beyond indices": (
        lambda: relu([2**40]),
        (
            "1 input in m.onnx cannot be compiled\n"
            "  'x'  input x has an extent of 1099511627776, the largest is 1000000000"
        ),
    ),
    "more elements than addresses": (
        lambda: relu([10**9, 10**9]),
        (
            "1 input in m.onnx cannot be compiled\n"
            "  'x'  input x has 1000000000000000000 elements, too many to address"
        ),
    ),
    "a result beyond indices": (
        lambda: model(
            [N("Expand", ["x", "s"], ["y"], "e")],
            [value("x", [1])],
            [value("y", [2**36])],
            {"s": np.array([2**36])},
        ),
        (
            "1 operator in m.onnx cannot be compiled\n"
            "  'e'  Expand(17) with an extent of 68719476736, the largest is 1000000000"
        ),
    ),
    "a function that calls itself": (
        lambda: function(["a"], [N("F", ["a"], ["b"], "in", domain="my")]),
        "function F calls itself\n  at: call/in",
    ),
    "a function without an input that it needs": (
        lambda: function(["a", "q"], [N("Add", ["a", "q"], ["b"], "in")]),
        (
            "1 operator in m.onnx cannot be compiled\n"
            "  'call/in'  Add(17) without its input 1  the model is malformed"
        ),
    ),
    "an attribute of another type": (
        lambda: model([N("Softmax", ["x"], ["y"], "s", axis="one")], [value("x")], [value("y")]),
        "Softmax(17) with attribute axis as a string, it takes an int\n  at: s",
    ),
    "an attribute that is missing": (
        lambda: model([N("Cast", ["x"], ["y"], "c")], [value("x")], [value("y")]),
        "Cast(17) without its attribute to\n  at: c",
    ),
    "an attribute that the operator does not have": (
        lambda: model([N("Relu", ["x"], ["y"], "r", alpha=1.0)], [value("x")], [value("y")]),
        "Relu(17) with attribute alpha, which it does not have\n  at: r",
    ),
    "a kernel_shape that is not the weight's": (
        lambda: model([N("Conv", ["x", "w"], ["y"], "c", kernel_shape=[2, 2])], *IMAGE, KERNEL),
        "Conv(17): kernel_shape (2, 2) with the weight f32[1, 1, 3, 3]\n  at: c",
    ),
    "a weight of negative extents": (
        lambda: stored(dims=[-2, -2], raw_data=bytes(16)),
        "a tensor of shape [-2, -2]\n  at: w",
    ),
    "a weight whose extents no array can have": (
        lambda: stored(dims=[2**40, 2**40, 0], raw_data=b""),
        "a tensor of shape [1099511627776, 1099511627776, 0]\n  at: w",
    ),
    "a node that defines a weight again": (
        lambda: model(
            [N("Relu", ["x"], ["w"], "r"), N("Add", ["x", "w"], ["y"], "s")],
            [value("x")],
            [value("y")],
            {"w": np.ones(4, np.float32)},
        ),
        "value 'w' is defined by a node, and by an input or initializer\n  at: r",
    ),
    "an offset of too many digits": (
        lambda: external(location="d.bin", offset="1" * 5000),
        f"external data with offset '{'1' * 5000}', it must be a whole number\n  at: w",
    ),
    "negative pads": (
        lambda: model([N("Conv", ["x", "w"], ["y"], "c", pads=[-1, 0, 0, 0])], *IMAGE, KERNEL),
        (
            "1 operator in m.onnx cannot be compiled\n"
            "  'c'  Conv(17) with negative pads  crop with Slice before it"
        ),
    ),
    "strides of zero": (
        lambda: model(
            [N("MaxPool", ["x"], ["y"], "p", kernel_shape=[2, 2], strides=[0, 1])], *IMAGE
        ),
        (
            "1 operator in m.onnx cannot be compiled\n"
            "  'p'  MaxPool(17) with strides [0, 1]  each must be 1 or more"
        ),
    ),
    "an index out of range": (
        lambda: model(
            [N("Gather", ["w", "i"], ["y"], "g")],
            [value("x", [1])],
            [value("y", [1])],
            {"w": np.ones(3, np.float32), "i": np.array([7])},
        ),
        (
            "1 operator in m.onnx cannot be compiled\n"
            "  'g'  Gather(17) of f32[3] with an index out of range  fix the indices"
        ),
    ),
    "a negative offset": (
        lambda: external(location="d.bin", offset="-5"),
        "external data with offset '-5', it must be a whole number\n  at: w",
    ),
    "data in a place of an impossible name": (
        lambda: external(location="d\0.bin"),
        "external data 'd\\x00.bin' cannot be looked for: embedded null byte\n  at: w",
    ),
    "data in a place of too long a name": (
        lambda: external(location="d" * 5000),
        f"external data '{'d' * 80}' cannot be looked for: File name too long\n  at: w",
    ),
    "a length that is no number": (
        lambda: external(location="d.bin", length="many"),
        "external data with length 'many', it must be a whole number\n  at: w",
    ),
    "data outside the folder": (
        lambda: external(location="/etc/passwd"),
        "external data '/etc/passwd' lies outside the model's folder\n  at: w",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, words = REFUSED[name]
    (tmp_path / "m.onnx").write_bytes(made().SerializeToString())
    (tmp_path / "d.bin").write_bytes(bytes(64))
    words_given = [str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.pkg"), "--target", "cpu"]
    assert main(words_given) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {words}"), said.err
    assert said.err.endswith("nothing was written\n") and not said.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.bin", "m.onnx"]


def compiled(made: onnx.ModelProto, folder: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    """Compile, check, run."""
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    package = folder / "m.pkg"
    words = [str(folder / "m.onnx"), "-o", str(package), "--target", "cpu:x86-64-v3", "--quiet"]
    assert main(words) == 0
    return load(package, device="cpu").run(feeds)


def test_values_without_elements(tmp_path: Path) -> None:
    """A sum over nothing is 0, a product over nothing too, and what has no elements stays so."""
    made = model(
        [
            N("Relu", ["x"], ["a"], "nothing"),
            N("MatMul", ["x", "w"], ["b"], "product"),
            N("ReduceSum", ["x", "axis"], ["c"], "sum", keepdims=0),
            N("ReduceProd", ["x"], ["d"], "prod", axes=[1], keepdims=0),
        ],
        [value("x", [3, 0])],
        [value("a", [3, 0]), value("b", [3, 5]), value("c", [3]), value("d", [3])],
        {"w": np.zeros((0, 5), np.float32), "axis": np.array([1])},
    )
    found = compiled(made, tmp_path, {"x": np.zeros((3, 0), np.float32)})
    assert found["a"].shape == (3, 0)
    np.testing.assert_array_equal(found["b"], np.zeros((3, 5)))
    np.testing.assert_array_equal(found["c"], np.zeros(3))
    np.testing.assert_array_equal(found["d"], np.ones(3))


def test_constants_wrap_around(tmp_path: Path) -> None:
    """Arithmetic of i64 constants is what the type does, also where it looks like a size."""
    made = model(
        [N("Mul", ["w", "w"], ["a"], "wraps"), N("Add", ["x", "a"], ["y"], "sum")],
        [value("x", ["n"], TensorProto.INT64)],
        [value("y", ["n"], TensorProto.INT64)],
        {"w": np.array([2**62 + 1])},
    )
    found = compiled(made, tmp_path, {"x": np.array([5, -5])})
    np.testing.assert_array_equal(
        found["y"], np.array([2**63 + 6, 2**63 - 4], np.uint64).astype(np.int64)
    )


def test_names_that_are_no_words(tmp_path: Path) -> None:
    """Names with spaces, quotes, line breaks, ends of comments, and of other scripts."""
    names = ('größe 1/"q"', "çà*/ \\", '*/ "a" \\\n b')
    made = model(
        [N("Relu", [names[0]], [names[1]], names[2])],
        [value(names[0], ["maß", "int"])],
        [value(names[1], ["maß", "int"])],
    )
    x = np.array([[-1.0, 2.0]], np.float32)
    found = compiled(made, tmp_path, {names[0]: x})
    np.testing.assert_array_equal(found[names[1]], np.maximum(x, 0))


def test_outputs_that_nothing_computes(tmp_path: Path) -> None:
    """An input, an initialiser and one value twice, as outputs."""
    made = model(
        [N("Relu", ["x"], ["a"]), N("Identity", ["a"], ["b"])],
        [value("x"), value("unused", ["k", 2])],
        [value("x"), value("a"), value("b"), value("w", [3])],
        {"w": np.arange(3, dtype=np.float32)},
    )
    x = np.array([[-1.0, 2.0, 0.0, -0.5]], np.float32)
    found = compiled(made, tmp_path, {"x": x, "unused": np.zeros((1, 2), np.float32)})
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["a"], np.maximum(x, 0))
    np.testing.assert_array_equal(found["b"], np.maximum(x, 0))
    np.testing.assert_array_equal(found["w"], [0, 1, 2])


def test_a_function_is_called_in_place(tmp_path: Path) -> None:
    made = function(["a"], [N("Add", ["a", "a"], ["c"], "in"), N("Relu", ["c"], ["b"], "re")])
    x = np.array([[-1.0, 2.0, 0.0, -0.5]], np.float32)
    np.testing.assert_array_equal(compiled(made, tmp_path, {"x": x})["y"], np.maximum(2 * x, 0))


def declared(kind: int, shape: Shape, inner: int = F) -> onnx.ModelProto:
    """y = -relu(x) of f32[2, 3], with another declaration of y, or of the value between."""
    made = model(
        [N("Relu", ["x"], ["h"], "r"), N("Neg", ["h"], ["y"], "n")],
        [value("x", (2, 3))],
        [value("y", shape, kind)],
    )
    made.graph.value_info.append(value("h", (2, 3), inner))
    return made


@pytest.mark.parametrize(
    "proto, words",
    [
        (declared(TensorProto.DOUBLE, (2, 3)), "'y' is declared as f64, but the graph gives f32"),
        (declared(F, (2, 3), TensorProto.INT64), "'h' is declared as i64, but the graph gives f32"),
    ],
)
def test_a_declared_type_that_is_not_so(proto: onnx.ModelProto, words: str) -> None:
    with pytest.raises(BadModel) as caught:
        import_model(proto)
    assert caught.value.what == words
    assert caught.value.hint == "export the model again, or correct the declared type"


@pytest.mark.parametrize(
    "shape, said",
    [
        ((2, 4), "[2, 4]"),
        ((2, 3, 1), "[2, 3, 1]"),
        (("b", 7), "[b, 7]"),
        ((2, 3), ""),
        (("b", "c"), ""),
    ],
)
def test_a_declared_shape_that_is_not_so(shape: Shape, said: str) -> None:
    """The graph decides, and the report says so."""
    wrong = f"output y is declared as {said}, but the graph gives [2, 3]"
    assert import_model(declared(F, shape)).report.contradicted == ((wrong,) if said else ())
