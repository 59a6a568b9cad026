"""The CUDA runtime through unmodified pycuda, on the emulator."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.build.runtime_emulator import NAMES, ROOT

PROGRAM = "import sys, tests.build.runtime_emulator as r; r.main(r.Path(sys.argv[1]))"


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    pytest.importorskip("pycuda", reason="the CUDA runtime needs pycuda")
    folder = tmp_path_factory.mktemp("emulated")
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_on_the_emulator(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] == "ok", verdicts[name]
