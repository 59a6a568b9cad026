"""The project's Python files, parsed once, for the rules of tests/arch."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("unistack_aot", "probe_suite", "models")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the project's root, its text and its tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self.text.count("\n")

    def functions(self) -> Iterator[Function]:
        """All functions and methods, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node


@cache
def files() -> tuple[str, ...]:
    """All files of the project, tracked or new, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(sorted(name for name in listed.stdout.splitlines() if (ROOT / name).is_file()))


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """The hand-written Python files under the folders; all of the project's without folders."""
    return tuple(
        _parsed(name)
        for name in files()
        if name.endswith(".py") and not name.endswith("_pb2.py")
        if not folders or name.startswith(tuple(f"{folder}/" for folder in folders))
    )


@cache
def _parsed(name: str) -> Source:
    text = (ROOT / name).read_text()
    return Source(name, text, ast.parse(text, name))


def report(offenders: list[str], rule: str) -> None:
    """Fail with the rule and every offender, or pass."""
    assert not offenders, f"{rule}\n  " + "\n  ".join(offenders)
