"""An installed copy by itself: pip install in a bare environment, compile, check, run."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _run(folder: Path, *command: str | Path) -> str:
    """What a command prints, run away from the checkout and without its paths."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_installed_copy_compiles_and_checks(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=True)
    programs = tmp_path / "bare" / "bin"
    source = tmp_path / "source"
    _run(ROOT, "git", "clone", "--quiet", ROOT, source)
    _run(tmp_path, programs / "pip", "install", "--quiet", source)
    model, package = tmp_path / "model.onnx", tmp_path / "model.pkg"
    recipe = (ROOT / "scripts" / "models.py", "build", "resnet_small", "-o", model)
    _run(ROOT, sys.executable, *recipe)
    command = programs / "unistack-aot"
    assert "checked" in _run(tmp_path, command, model, "-o", package, "--target", "cpu:x86-64-v3")
    assert "good" in _run(tmp_path, command, "check", model, package)
    assert "good" in _run(tmp_path, command, "run", package, "--device", "cpu", "--selftest")
