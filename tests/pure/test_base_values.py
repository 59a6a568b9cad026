"""Dtypes, errors, options, environment, measured values and the text builder."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

import unistack_aot
from unistack_aot.base import dtypes, errors
from unistack_aot.base.environment import environment
from unistack_aot.base.measured import Measured, quantity
from unistack_aot.base.options import DimRange, Options, dim_ranges, parse_dim
from unistack_aot.base.text import Lines, table

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_dtypes_agree_with_numpy(dtype: dtypes.DType) -> None:
    assert dtypes.dtype_of(dtype.numpy) is dtype
    assert dtypes.parse_dtype(dtype.name) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert dtype.numpy.itemsize == dtype.bytes
    if dtype.is_float:
        assert float(ml_dtypes.finfo(dtype.numpy).max) == dtype.highest
        assert float(ml_dtypes.finfo(dtype.numpy).min) == dtype.lowest
    if dtype.is_int:
        assert (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max) == (
            dtype.lowest,
            dtype.highest,
        )
    assert dtype.is_signed == (dtype.lowest < 0)


def test_unknown_types_are_refused() -> None:
    with pytest.raises(errors.BadInput, match="complex64 is not supported"):
        dtypes.dtype_of(np.complex64)
    with pytest.raises(errors.BadInput, match="no element type is called 'float'"):
        dtypes.parse_dtype("float")


def test_a_deployed_machine_needs_numpy_only() -> None:
    """Without ml_dtypes all imports work and only the use of bf16 is refused, with a sentence."""
    program = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import unistack_aot\n"
        "from unistack_aot.base import dtypes\n"
        "assert dtypes.f32.numpy.itemsize == 4\n"
        "heavy = {'onnx', 'onnxruntime', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "try: dtypes.bf16.numpy\n"
        "except unistack_aot.UnistackError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert "bf16 arrays need the ml_dtypes package" in done.stdout
    assert "pip install ml_dtypes" in done.stdout


def test_errors_say_what_where_and_what_to_do() -> None:
    error = errors.Unsupported("Resize with cubic mode", at="'up1'", hint="export as linear")
    assert str(error) == "Resize with cubic mode\n  at: 'up1'\n  do: export as linear"
    assert (error.what, error.at, error.hint) == (
        "Resize with cubic mode",
        "'up1'",
        "export as linear",
    )
    assert str(errors.BadModel("no graph")) == "no graph"
    assert isinstance(error, unistack_aot.UnistackError)
    assert errors.CheckFailed("x").exit_code == 1
    others = (
        errors.BadModel,
        errors.Unsupported,
        errors.BadInput,
        errors.BadPackage,
        errors.MissingTool,
        errors.ToolFailed,
        errors.IRError,
    )
    assert {kind.exit_code for kind in others} == {2}


def test_the_public_face_is_lazy_and_complete() -> None:
    assert set(dir(unistack_aot)) == set(unistack_aot.__all__)
    with pytest.raises(AttributeError, match="no attribute 'compile'"):
        _ = unistack_aot.compile  # type: ignore[attr-defined]


def test_importing_the_package_check_does_not_hide_the_function() -> None:
    """The import system sets a package's submodules as attributes of it."""
    unistack_aot.check = ModuleType("unistack_aot.check")
    assert "check" not in vars(unistack_aot)


@pytest.mark.parametrize(
    ("value", "unit", "want"),
    [
        (1.2e9, "B/s", "1.20 GB/s"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (3.4e-6, "s", "3.40 us"),
        (0.9996e-3, "s", "1.00 ms"),
        (12.0, "s", "12 s"),
        (25_794_969, "B", "24.6 MiB"),
        (512, "B", "512 B"),
        (2**20, "B", "1 MiB"),
        (1.98e9, "Hz", "1.98 GHz"),
        (0, "s", "0 s"),
        (0.25, "1", "0.25"),
        (-3.4e-6, "s", "-3.40 us"),
        (123.4e9, "FLOP/s", "123 GFLOP/s"),
    ],
)
def test_quantities_read_well(value: float, unit: str, want: str) -> None:
    assert quantity(value, unit) == want


def test_measured_values_need_unit_and_source() -> None:
    assert str(Measured(5.4e12, "B/s", "stream_l2", spread=0.02)) == "5.40 TB/s +-2.0%"
    with pytest.raises(ValueError, match="needs a unit and a source"):
        Measured(1.0, "B/s", "")


def test_options_digest_what_alters_the_package_and_nothing_else(tmp_path: Path) -> None:
    plain = Options()
    assert plain.digest == Options(verify=3, dump=tmp_path).digest
    others = [
        Options(targets=("cpu",)),
        Options(dims=dim_ranges({"batch": (1, 8)})),
        Options(dims=dim_ranges({"batch": (1, 4, 8)})),
        Options(precision="bf16"),
        Options(threads=4),
        Options(override=tmp_path),
    ]
    assert len({plain.digest, *(options.digest for options in others)}) == 1 + len(others)
    before = Options(override=tmp_path).digest
    (tmp_path / "03-algebra.aicf").write_text("graph")
    assert Options(override=tmp_path).digest != before


def test_options_refuse_nonsense() -> None:
    with pytest.raises(errors.BadInput, match="no precision is called 'f8'"):
        Options(precision="f8")  # type: ignore[arg-type]
    with pytest.raises(errors.BadInput, match="no verification level 7"):
        Options(verify=7)
    with pytest.raises(errors.BadInput, match="-1 threads"):
        Options(threads=-1)
    with pytest.raises(errors.BadInput, match="override folder does not exist"):
        _ = Options(override=Path("no such folder")).digest


def test_dimension_ranges() -> None:
    ranges = dim_ranges({"seq": (1, 64, 512), "batch": 8, "heads": (2, 4)})
    assert ranges == (
        ("batch", DimRange(8, 8, 8)),
        ("heads", DimRange(2, 4, 4)),
        ("seq", DimRange(1, 64, 512)),
    )
    assert parse_dim("batch=1..4..8") == ("batch", DimRange(1, 4, 8))
    assert parse_dim("batch=1..8") == ("batch", DimRange(1, 8, 8))
    assert Options(dims=ranges).dim("seq") == DimRange(1, 64, 512)
    assert Options(dims=ranges).dim("other") is None
    assert 512 in DimRange(1, 64, 512)
    assert 513 not in DimRange(1, 64, 512)
    for bad in ("batch", "batch=", "=8", "batch=1..2..3..4", "batch=8..1", "batch=-1"):
        with pytest.raises(errors.BadInput):
            parse_dim(bad)


def test_environment_is_read_once_and_checked() -> None:
    found = environment({"UA_CACHE": "/c", "UA_CXX": "clang++", "UA_THREADS": "3"})
    assert (found.cache, found.cxx, found.nvcc, found.threads) == (Path("/c"), "clang++", None, 3)
    assert found.models == Path("/c/models")
    assert environment({}).jobs >= 1
    for bad in ("zero", "0", "-2"):
        with pytest.raises(errors.BadInput, match="UA_JOBS"):
            environment({"UA_JOBS": bad})


def test_text_is_indented_by_blocks() -> None:
    lines = Lines()
    with lines.block("for i in 4 {"):
        lines.add("a\n\nb")
        with lines.block("else", tail=""):
            lines.add("c")
    assert str(lines) == "for i in 4 {\n  a\n\n  b\n  else\n    c\n}\n"
    assert str(Lines()) == ""
    assert table([("a", "bb"), ("ccc", "d", "e")]) == ["a    bb", "ccc  d   e"]
