"""Static types, checked by pyright with the settings in pyproject.toml."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from .source import ROOT, report


def test_types() -> None:
    command = shutil.which("pyright", path=str(Path(sys.executable).parent))
    assert command, "pyright is missing: pip install -e .[test]"
    done = subprocess.run(
        [command, "--outputjson", "--pythonpath", sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stdout.lstrip().startswith("{"), (
        "pyright did not start: its Python package fetches node and the checker itself on first "
        "use, so it needs a package registry once, or node on PATH and a filled cache\n"
        f"{done.stdout}{done.stderr}"
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 10, "pyright looked at almost no files"
    report(
        [
            f"{Path(item['file']).relative_to(ROOT)}:{item['range']['start']['line'] + 1} "
            f"{item['message'].splitlines()[0]} [{item.get('rule', 'error')}]"
            for item in found["generalDiagnostics"]
            if item["severity"] == "error"
        ],
        "pyright finds these errors:",
    )
