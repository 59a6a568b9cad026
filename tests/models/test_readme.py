"""What README.md shows: its commands are run as they stand, its output is compared line by line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import onnx.defs
import pytest

from unistack_aot.ops.onnx import importer_for

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([\w./-]+)\)")
ARCHITECTURE = README[README.index("## Architecture") : README.index("## How to add")]
FOLDERS = re.findall(r"^\| `([\w./]+)` \|", ARCHITECTURE, re.MULTILINE)
HASH = re.compile(r"\b(?=[a-z]*\d)[0-9a-f]{16}\b")
NUMBER = re.compile(r"-?\d[\d.]*(?: (?:B|KB|MB|ns|us|ms|s)\b)?")


def _tour() -> Iterator[tuple[str, str]]:
    """(kind, text) of the tour's blocks: sh and python are run, text is what came out last."""
    tour = README[README.index("## Five minutes") : README.index("## How data flows")]
    return ((block[1], block[2]) for block in BLOCK.finditer(tour))


def _masked(line: str) -> str:
    """The line without what differs from machine to machine: numbers, hashes, widths."""
    return " ".join(NUMBER.sub("#", HASH.sub("#", line)).split())


def _printed(line: str, printed: list[str]) -> bool:
    """Whether a line came out, or one that begins with it if it was cut ("...")."""
    seen = {_masked(each) for each in printed}
    if _masked(line) in seen:
        return True
    cut = _masked(line.removesuffix("..."))
    return line.endswith("...") and any(each.startswith(cut) for each in seen)


def _run(kind: str, text: str, folder: Path) -> str:
    """What a block prints, with this project's command and scripts within reach."""
    place = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{place}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "200",
    }
    command = [sys.executable, "-c", text] if kind == "python" else ["sh", "-euc", text]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"this block of README.md fails:\n{text}\n{done.stderr}"
    return done.stdout


@pytest.mark.skipif(
    find_spec("pycuda") is None, reason="pycuda is not installed (scripts/setup.sh builds it)"
)
def test_the_tour(tmp_path: Path) -> None:
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    printed: list[str] = []
    missing: list[str] = []
    commands = 0
    for kind, text in _tour():
        if kind == "text":
            missing += [line for line in text.splitlines() if not _printed(line, printed)]
            continue
        commands += 1
        printed = _run(kind, text, tmp_path).splitlines()
    assert commands >= 5
    assert not missing, "README.md shows lines that are no longer printed:\n" + "\n".join(missing)


def test_the_number_of_operators() -> None:
    """Counted: current operators of the main domain, and those with an importer."""
    newest = onnx.defs.onnx_opset_version()
    current: dict[str, onnx.defs.OpSchema] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        known = current.get(schema.name)
        if schema.domain == "" and (known is None or schema.since_version > known.since_version):
            current[schema.name] = schema
    names = [name for name, schema in current.items() if not schema.deprecated]
    count = sum(importer_for("", name, newest) is not None for name in names)
    assert f"Operators: {count} of the {len(names)} current ones" in README


def test_files_and_folders_exist() -> None:
    named = [*LINK.findall(README), *FOLDERS]
    named += re.findall(r"^(scripts/[\w.]+)", README, re.MULTILINE)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_is_linked_and_links_lead_somewhere() -> None:
    pages = sorted((ROOT / "docs").glob("*.md"))
    assert {f"docs/{page.name}" for page in pages} - set(LINK.findall(README)) == set()
    broken = [
        f"{page.name}: {link}"
        for page in pages
        for link in LINK.findall(page.read_text())
        if not (page.parent / link).exists()
    ]
    assert broken == []


def test_every_layer_is_described() -> None:
    layers = {path.parent.name for path in (ROOT / "unistack_aot").glob("*/__init__.py")}
    described = {name.removeprefix("unistack_aot/") for name in FOLDERS}
    assert layers - described == set()


def test_the_example_op_is_the_real_one() -> None:
    [example] = [block[2] for block in BLOCK.finditer(README) if "@onnx" in block[2]]
    assert example in (ROOT / "unistack_aot/ops/activation.py").read_text()


@pytest.mark.slow
def test_the_demo() -> None:
    done = subprocess.run(
        ["sh", "scripts/demo.sh"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "demo: done" in done.stdout
