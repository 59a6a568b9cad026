"""Values that all readers round are stored rounded: half the bytes, the same results to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.build.device_kernels import Decided, image_text, run_case
from unistack_aot.base.dtypes import f32
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.mcir.canonical import closed
from unistack_aot.mcir.nodes import Access, Kernel, Param
from unistack_aot.mcir.program import Buffer, Kind, Launch, Program
from unistack_aot.ops.attention import Attention
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.op import TensorOp
from unistack_aot.ops.pointwise import Add, Exp
from unistack_aot.targets.cuda import legalize
from unistack_aot.targets.cuda.source import kernel_text

Part = tuple[TensorOp, tuple[str, ...], str]
MATRIX: dict[str, tuple[int, ...]] = dict.fromkeys(("x", "w", "v", "u", "y"), (64, 64))
HEADS: dict[str, tuple[int, ...]] = dict.fromkeys(("x", "q", "k", "h", "y"), (1, 2, 40, 32))
INPUTS = "xwkh"
PRODUCT = Contract("ac", "cb", "ab")
CHAIN: list[Part] = [(PRODUCT, ("x", "w"), "v"), (PRODUCT, ("v", "w"), "y")]
ATTENDED: list[Part] = [(Exp(), ("x",), "q"), (Attention(0.2), ("q", "k", "h"), "y")]


def scheduled(
    parts: Sequence[Part], shapes: dict[str, tuple[int, ...]], precision: str
) -> tuple[Program, Decided]:
    """The parts, one launch each, legalised as one program for sm_90."""

    def param(name: str, access: Access = Access.IN) -> Param:
        return Param(name, f32, shapes[name], access)

    def kernel(op: TensorOp, args: tuple[str, ...], result: str) -> Kernel:
        return op.lower(tuple(map(param, args)), (param(result, Access.OUT),))

    kinds = {**dict.fromkeys(INPUTS, Kind.INPUT), "y": Kind.OUTPUT}
    used = {name for _, args, result in parts for name in (*args, result)}
    buffers = tuple(Buffer(n, f32, shapes[n], kinds.get(n, Kind.ARENA)) for n in sorted(used))
    nests = [kernel(*part) for part in parts]
    program = Program("parts", buffers, tuple(closed(nest, Launch(nest, ())) for nest in nests))
    legal = legalize.legalize(program, {}, {}, machine_for_arch("sm_90"), precision)
    done, kept = legal.program, legal.constants
    launches = tuple(done.launches())
    texts = tuple(kernel_text(f"k{n}", each.kernel, {}, ()) for n, each in enumerate(launches))
    return done, Decided(launches, texts, kept)


def result(case: Decided, shapes: dict[str, tuple[int, ...]]) -> Any:
    """What the launches compute from seeded inputs."""
    rng = np.random.default_rng(11)
    names = {arg for launch in case.launches for arg in launch.args}
    feeds = {n: rng.standard_normal(shapes[n]).astype(np.float32) for n in INPUTS if n in names}
    found, _ = run_case(image_text({"k": case}), case, feeds, {})
    return found["y"]


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize(
    ("parts", "shapes", "name"),
    [(CHAIN, MATRIX, "v"), (ATTENDED, HEADS, "q")],
    ids=["products", "attention"],
)
def test_rounded_once_instead_of_at_every_reader(
    parts: list[Part],
    shapes: dict[str, tuple[int, ...]],
    name: str,
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, case = scheduled(parts, shapes, precision)
    assert program.by_name()[name].dtype.name == precision
    narrow = result(case, shapes)
    as_it_is: Callable[..., Any] = lambda program, takes: (program, ())  # noqa: E731
    monkeypatch.setattr(legalize, "narrow_storage", as_it_is)
    program, case = scheduled(parts, shapes, precision)
    assert program.by_name()[name].dtype is f32
    np.testing.assert_array_equal(narrow, result(case, shapes))


@pytest.mark.parametrize(
    ("parts", "precision"),
    [
        (CHAIN, "f32"),
        (CHAIN, "tf32"),
        ([*CHAIN[:1], (PRODUCT, ("v", "w"), "u"), (Add(), ("u", "v"), "y")], "bf16"),
    ],
    ids=["exact", "same width", "another reader"],
)
def test_stored_as_it_is_where_somebody_needs_it(parts: list[Part], precision: str) -> None:
    program, _ = scheduled(parts, MATRIX, precision)
    assert all(buffer.dtype is f32 for buffer in program.buffers)
