"""A machine whose only C++ compiler is pip's ziglang: a model is compiled, checked and run there."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest

from models.catalogue import entry
from tests.build.cpu_graphs import levels_here

ROOT = Path(__file__).resolve().parents[2]
NO_ZIG = "no ziglang package in this environment (pip install 'unistack-aot[cpu]')"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ziglang") is None, reason=NO_ZIG),
]


def cli(folder: Path, *words: str) -> str:
    """What the command says with a PATH on which there is nothing, and a cache of its own."""
    seen = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    changes = {"PATH": str(folder / "nothing"), "UA_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "unistack_aot", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **changes, "PYTHONPATH": seen, "UA_CXX": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_compile_check_run(tmp_path: Path) -> None:
    model, package = str(tmp_path / "model.onnx"), str(tmp_path / "model.pkg")
    onnx.save(entry("bert_small").load(), model)
    made = cli(tmp_path, model, "-o", package, "--target", "cpu")
    for level in ("x86-64-v4", "x86-64-v3"):
        assert f"cpu:{level}" in made
    assert "good" in cli(tmp_path, "check", model, package)
    if "x86-64-v3" in levels_here():
        assert "good" in cli(tmp_path, "run", package, "--device", "cpu", "--selftest")
    assert "ziglang" in cli(tmp_path, "doctor")
