"""Choosing a device and a variant: levels, features, reasons, refusals, a bare deployed machine."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import numpy as np
import pytest

from tests.build.runtime_packages import (
    HEAD,
    buffer,
    compile_library,
    kernel,
    launch_table,
    manifest_of,
    package,
    variant_of,
)
from unistack_aot.artifact import manifest as m
from unistack_aot.base.errors import BadInput, BadPackage, UnistackError
from unistack_aot.runtime import devices
from unistack_aot.runtime.processor import Processor, best_variant, default_threads, this_processor
from unistack_aot.runtime.session import load

ROOT = Path(__file__).parents[2]
V2 = frozenset(
    ["cx8", "cmov", "fxsr", "sse2", "cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"]
)
V3 = V2 | frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"])
V4 = V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])


def variant(target: str, *needs: str) -> m.Variant:
    return m.Variant(target, "code", (), (), (), needs=needs)


LEVELS = (
    variant("cuda:sm_90"),
    variant("cpu:x86-64-v4", "amx_bf16"),
    variant("cpu:x86-64-v4"),
    variant("cpu:x86-64-v3"),
    variant("cpu:x86-64-v2"),
    variant("cpu:aarch64"),
)


@pytest.mark.parametrize(
    ("processor", "target"),
    [
        (Processor("x86_64", V4), "cpu:x86-64-v4"),
        (Processor("x86_64", V3), "cpu:x86-64-v3"),
        (Processor("x86_64", V2), "cpu:x86-64-v2"),
        (Processor("aarch64", frozenset({"asimd"})), "cpu:aarch64"),
    ],
)
def test_the_best_level_that_runs(processor: Processor, target: str) -> None:
    for order in (LEVELS, LEVELS[::-1]):
        found, _ = best_variant(order, processor)
        assert found is not None
        assert found.target == target


def test_reasons_why_not() -> None:
    found, reasons = best_variant(LEVELS[1:3], Processor("x86_64", V3 | {"avx512f"}))
    assert found is None
    assert reasons == (
        "cpu:x86-64-v4 needs amx_bf16, avx512bw, avx512cd, avx512dq, avx512vl",
        "cpu:x86-64-v4 needs avx512bw, avx512cd, avx512dq, avx512vl",
    )
    _, reasons = best_variant(LEVELS[5:], Processor("x86_64", V3))
    assert reasons == ("cpu:aarch64 is for aarch64, this processor is x86_64",)


def test_this_processor_is_known() -> None:
    assert this_processor().features
    assert default_threads() >= 1


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("negate")
    calls = ["for (int64_t i = 0; i < d[0]; ++i) ((float*)b[1])[i] = -((float*)b[0])[i]"]
    code = compile_library(folder, HEAD + launch_table(calls))
    buffers = [buffer("x", ("n",), "input"), buffer("y", ("n",), "output")]
    made = variant_of(buffers, [kernel("negate", 2)], [m.Launch(0, (0, 1))])
    manifest = manifest_of(made, m.Dim("n", 1, 100, 8))
    return package(folder / "m.pkg", code, manifest)


def test_auto_says_why(path: Path) -> None:
    session = load(path)
    assert (session.device, session.device_reason) == ("cpu", "the package has no CUDA variant")
    assert session.variant.target == "cpu:x86-64-v2"


def test_refusals(path: Path) -> None:
    with pytest.raises(BadPackage, match="has no cuda variant, only cpu:x86-64-v2"):
        load(path, "cuda:0")
    with pytest.raises(BadPackage, match="has no emulator variant, only cpu:x86-64-v2"):
        load(path, "emulator")
    with pytest.raises(BadInput, match="there is no device 'tpu'"):
        load(path, "tpu")
    with pytest.raises(BadInput, match="threads=0 is not positive"):
        load(path, "cpu", threads=0)
    with pytest.raises(BadInput, match="there is no dimension 'm'"):
        load(path, "cpu").plan({"m": 3})


def test_only_foreign_variants(tmp_path: Path) -> None:
    manifest = m.Manifest("tests", "hand", (), (), (variant("cpu:riscv64"),))
    found = package(tmp_path / "m.pkg", b"code", manifest)
    with pytest.raises(BadPackage, match="cpu:riscv64 is for riscv64, this processor is"):
        load(found, "cpu")


def test_the_hook_of_a_device_runs_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def hook() -> None:
        called.append("hook")
        raise UnistackError("no driver")

    monkeypatch.setitem(devices._hooks, "emulator", "missing.module:activate")
    monkeypatch.setattr(devices, "_variants", lambda *_: (variant("emulator:sm_90"),))
    with pytest.raises(UnistackError, match=r"device 'emulator' needs missing.module"):
        load(path, "emulator")
    devices.register_device_hook("emulator", hook)
    with pytest.raises(UnistackError, match="no driver"):
        load(path, "emulator")
    assert called == ["hook"]


BARE = """
    import sys

    class Blocker:
        blocked = {"onnx", "onnxruntime", "ml_dtypes", "pycuda", "pytest", "scipy", "safetensors"}
        ours = {"unistack_aot.base", "unistack_aot.artifact", "unistack_aot.runtime"}

        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in self.blocked:
                raise ImportError(f"{name} is blocked")
            top = ".".join(name.split(".")[:2])
            if top.startswith("unistack_aot.") and top not in self.ours:
                raise ImportError(f"{name} is blocked")

    sys.meta_path.insert(0, Blocker())
    import numpy as np
    import unistack_aot as ua

    session = ua.load(sys.argv[1])
    print(session.device, session.run({"x": np.arange(3, dtype=np.float32)})["y"].tolist())
"""


def test_runs_where_only_numpy_and_protobuf_are(path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(BARE), str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "cpu [-0.0, -1.0, -2.0]\n", done.stderr


@pytest.mark.slow
def test_runs_in_a_bare_environment(path: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", f"numpy=={np.__version__}", "protobuf"]
    if subprocess.run(install, check=False).returncode:
        pytest.skip("numpy and protobuf cannot be installed here (no package index)")
    command = [str(python), "-c", textwrap.dedent(BARE), str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "cpu [-0.0, -1.0, -2.0]\n", done.stderr
