"""Indices of 32 bits: for which kernels, under which demand, and what a run beyond it is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from models.builder import GraphBuilder
from tests.build.device_kernels import decide, image_text, run_case
from unistack_aot.artifact.manifest import Manifest
from unistack_aot.artifact.reader import open_package
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import Ranges, parse, text
from unistack_aot.base.verdict import No
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime.binding import Signature
from unistack_aot.targets.cuda.indices import MOST, demand, largest, narrowed

OPEN: Ranges = {"N": (1, None), "M": (1, None)}
COPY = """kernel k(x: f32[N, 64] far) -> y: f32[N, 64] far {
  for i in N, j in 64 { y[i, j] = x[i, j] }
}"""
PAIRS = """kernel k(x: f32[N] far, z: f32[M] far) -> y: f32[N] far {
  for i in N {
    s = fold sum over j in M of (x[i] * z[j]) * f32([i * M + j])
    y[i] = s
  }
}"""


def asked(kernel: str, ranges: Ranges) -> list[str] | No:
    """The sizes that must fit, as text."""
    found = narrowed(parse_kernel(kernel), ranges)
    return found if isinstance(found, No) else [text(size) for size in found]


def test_sizes_that_always_fit_are_not_asked_for() -> None:
    assert asked(COPY, {"N": (1, MOST // 64)}) == []


def test_an_open_dimension_is_a_demand() -> None:
    assert asked(COPY, OPEN) == ["64*N"]


def test_a_declared_range_that_allows_more_takes_64_bits() -> None:
    assert isinstance(asked(COPY, {"N": (1, MOST // 64 + 1)}), No)
    printed = [
        decide(parse_kernel(COPY), "k", ranges=ranges).texts[0].definition
        for ranges in ({"N": (1, MOST // 64)}, {"N": (1, MOST)}, OPEN)
    ]
    assert ["int64_t" in each for each in printed] == [False, True, False]


def test_large_rows_leave_open_dimensions_room() -> None:
    """A demand never says less than 65536: 64 bits are better than that."""
    rows = MOST // (1 << 16)
    kernels = [COPY.replace("64", str(size)) for size in (rows, rows + 1)]
    assert [isinstance(asked(each, OPEN), No) for each in kernels] == [False, True]


def test_what_is_in_no_buffer_must_fit_too() -> None:
    """Numbers of pairs, of which no buffer holds as many."""
    assert asked(PAIRS, OPEN) == ["M*N"]
    assert isinstance(asked(PAIRS, {"N": (1, 1 << 17), "M": (1, 1 << 17)}), No)
    assert asked(PAIRS, {"N": (1, 1 << 14), "M": (1, 1 << 14)}) == []


def test_products_with_quotients_have_no_bound() -> None:
    odd = PAIRS.replace("i * M + j", "(i // M) * j")
    assert isinstance(asked(odd, OPEN), No)


def test_the_largest_sizes_stand_for_the_others() -> None:
    sizes = [parse(each) for each in ("3*N", "64*N", "N + M", "7", "N")]
    assert [text(size) for size in largest(sizes, OPEN)] == ["64*N", "M + N"]


@pytest.mark.parametrize("top", [MOST, None], ids=["64 bits", "32 bits"])
def test_both_widths_compute_the_same(top: int | None) -> None:
    kernel = parse_kernel(PAIRS)
    case = decide(kernel, "k", ranges={"N": (1, top), "M": (1, top)})
    assert ("int64_t dim_N" in case.texts[0].definition) == (top is not None)
    rng = np.random.default_rng(1)
    x, z = (rng.standard_normal(n).astype(np.float32) for n in (37, 45))
    found, _ = run_case(image_text({"k": case}), case, {"x": x, "z": z}, {"N": 37, "M": 45})
    numbers = np.arange(37 * 45).reshape(37, 45)
    np.testing.assert_allclose(found["y"], (x[:, None] * z * numbers).sum(1), rtol=1e-3, atol=0.5)


def doubled() -> onnx.ModelProto:
    """A map over rows of 64."""
    g = GraphBuilder("doubled")
    x = g.input("x", ("rows", 64))
    g.output(g.op("Add", x, x), "y", ("rows", 64))
    return g.build()


def test_a_run_beyond_the_demand_is_refused(tmp_path: Path) -> None:
    """With the sizes and what to do; a declared range lifts it."""
    opened = {}
    for name, dims in (("open", {}), ("declared", {"rows": (1, 1 << 25)})):
        path = tmp_path / f"{name}.pkg"
        compile_model(doubled(), path, ("emulator:sm_80",), dims)
        manifest = open_package(path).manifest
        (variant,) = manifest.variants
        opened[name] = Signature(manifest, refused, variant.demands)
    shape = (1 << 24, 64)
    assert opened["declared"].bind([shape]) == {"rows": 1 << 24}
    assert opened["open"].bind([(1 << 23, 64)]) == {"rows": 1 << 23}
    with pytest.raises(
        BadInput, match=r"count to 64\*rows in 32 bits.*here rows = 16777216"
    ) as error:
        opened["open"].bind([shape])
    assert "--dim rows=1..N" in str(error.value)


def test_a_demand_is_part_of_the_package() -> None:
    need = demand(parse("64*N"))
    assert need.value == text(MOST - parse("64*N"))
    assert Signature(Manifest("t", "m", (), (), ()), refused, (need,)).demands[0][1] is need


def refused(value: object, name: str) -> np.ndarray:
    """No array of a device is given here."""
    raise AssertionError(f"{name}: {value}")
