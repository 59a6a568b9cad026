"""Feeding a package wrongly: the exact words for each mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from unistack_aot.artifact import manifest as m
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import parse, symbols
from unistack_aot.runtime.binding import Signature

INPUTS = (
    m.Tensor("x", "f32", ("batch", "3")),
    m.Tensor("ids", "i64", ("batch", "2*len + 1")),
)
DIMS = (m.Dim("batch", 1, 8, 4), m.Dim("len", 1, 64, 16))
MANIFEST = m.Manifest("tests", "hand", INPUTS, (), (), DIMS)
KNOWN = "the inputs are x: f32[batch, 3], ids: i64[batch, 2*len + 1]"


def no_device(given: object, name: str) -> np.ndarray:
    raise AssertionError(f"{name} is no device array: {given}")


def bind(feeds: Mapping[str, object]) -> dict[str, int]:
    signature = Signature(MANIFEST, no_device)
    return signature.bind([array.shape for array in signature.collect(feeds)])


def good(**changes: object) -> dict[str, object]:
    return {"x": np.zeros((4, 3), np.float32), "ids": np.zeros((4, 33), np.int64), **changes}


def test_dimensions_follow_from_shapes() -> None:
    assert bind(good()) == {"batch": 4, "len": 16}


class _OnDevice:
    def __dlpack__(self) -> object:
        raise AssertionError("never asked for")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (10, 0)


def _without_x() -> dict[str, object]:
    feeds = good()
    del feeds["x"]
    return feeds


REFUSALS: dict[str, tuple[Callable[[], Mapping[str, object]], str, str]] = {
    "missing": (_without_x, "input 'x' is missing", KNOWN),
    "unknown": (lambda: good(y=1), "there is no input 'y'", KNOWN),
    "renamed": (
        lambda: {**_without_x(), "X": 1},
        "input 'x' is missing; there is no input 'X'",
        KNOWN,
    ),
    "type": (
        lambda: good(x=np.zeros((4, 3))),
        "input 'x' is float64, the model takes float32",
        "convert it: array.astype('float32')",
    ),
    "list": (
        lambda: good(x=[[1, 2, 3]]),
        "input 'x' is a list, not an array",
        "give numpy.asarray(value, 'float32')",
    ),
    "rank": (
        lambda: good(x=np.zeros(3, np.float32)),
        "input 'x' has shape [3], the model takes 2 dimensions",
        "reshape it",
    ),
    "fixed": (
        lambda: good(x=np.zeros((4, 5), np.float32)),
        "axis 1 of input 'x' has size 5, the model takes 3",
        "give an array of that shape, or compile with a symbolic dimension there",
    ),
    "conflict": (
        lambda: good(ids=np.zeros((5, 33), np.int64)),
        "dimension 'batch' is 4 in axis 0 of input 'x' and 5 in axis 0 of input 'ids'",
        "give arrays that agree",
    ),
    "expression": (
        lambda: good(ids=np.zeros((4, 32), np.int64)),
        "axis 1 of input 'ids' has size 32, the model takes 2*len + 1 (len = 15)",
        "give arrays that agree",
    ),
    "range": (
        lambda: good(x=np.zeros((9, 3), np.float32), ids=np.zeros((9, 33), np.int64)),
        "dimension 'batch' is 9 in axis 0 of input 'x', the package was compiled for 1..8",
        "compile with --dim batch=1..9",
    ),
    "device": (
        lambda: good(x=_OnDevice()),
        "input 'x' lies on a device (DLPack type 10)",
        "copy it to the host first",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusal(case: str) -> None:
    feeds, what, hint = REFUSALS[case]
    with pytest.raises(BadInput) as caught:
        bind(feeds())
    assert (caught.value.what, caught.value.hint) == (what, hint)


@pytest.mark.parametrize("given", [None, [np.zeros(3, np.float32)], "x"])
def test_feeds_that_are_no_mapping(given: object) -> None:
    with pytest.raises(BadInput, match=f"feeds is a {type(given).__name__}, not a mapping"):
        Signature(MANIFEST, no_device).collect(given)


def test_dimension_no_input_tells() -> None:
    manifest = m.Manifest("tests", "hand", INPUTS[:1], (), (), DIMS)
    with pytest.raises(BadInput, match="no input tells the value of dimension 'len'"):
        Signature(manifest, no_device).bind([(4, 3)])


def test_dlpack_that_fails() -> None:
    class Broken:
        def __dlpack__(self, **options: object) -> object:
            raise BufferError("gradients are recorded")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    with pytest.raises(BadInput, match=r"cannot be read through DLPack \(gradients are recorded\)"):
        bind(good(x=Broken()))


def bind_shapes(declared: dict[str, tuple[str, ...]], *given: tuple[int, ...]) -> dict[str, int]:
    """The dimensions of inputs with these declared shapes, for arrays of given shapes."""
    inputs = tuple(m.Tensor(name, "f32", shape) for name, shape in declared.items())
    names = sorted({n for shape in declared.values() for e in shape for n in symbols(parse(e))})
    dims = tuple(m.Dim(name, 0, 1000, 1) for name in names)
    return Signature(m.Manifest("tests", "hand", inputs, (), (), dims), no_device).bind(list(given))


def test_multiples_are_solved_and_refused() -> None:
    assert bind_shapes({"x": ("4*rows", "8*rows")}, (12, 24)) == {"rows": 3}
    with pytest.raises(BadInput) as caught:
        bind_shapes({"x": ("4*rows",)}, (10,))
    assert caught.value.what == "axis 0 of input 'x' has size 10, the model takes multiples of 4"
    assert caught.value.hint == "pad it to 12"


def test_sums_are_solved_in_any_order() -> None:
    declared = {"mask": ("past + fresh + more",), "sum": ("past + fresh",), "cache": ("past",)}
    assert bind_shapes(declared, (12,), (9,), (7,)) == {"fresh": 2, "more": 3, "past": 7}
    with pytest.raises(BadInput, match="no input tells the value of dimension 'fresh'"):
        bind_shapes({"sum": ("past + fresh",)}, (9,))
    with pytest.raises(BadInput, match="dimension 'fresh' is -2 in axis 0 of input 'sum'"):
        bind_shapes({"sum": ("past + fresh",), "cache": ("past",)}, (5,), (7,))
