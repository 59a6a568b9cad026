"""What an installed package must contain: every file that the code reads, and the entry point."""

from __future__ import annotations

import ast
import tomllib
from fnmatch import fnmatch
from pathlib import PurePosixPath

from .source import PRODUCT, ROOT, files, report

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_data_files_are_installed() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    report(
        [
            name
            for name in files()
            if name.startswith(tuple(f"{package}/" for package in PRODUCT))
            and not name.endswith((".py", ".md"))
            and not any(fnmatch(PurePosixPath(name).name, pattern) for pattern in patterns)
        ],
        "add a pattern for these files to package-data in pyproject.toml:",
    )


def test_folders_with_code_are_packages() -> None:
    """Without __init__.py a folder and its data would be missing from an installed copy."""
    present = set(files())
    folders = {
        str(PurePosixPath(name).parent)
        for name in present
        if name.endswith(".py") and name.startswith(tuple(f"{package}/" for package in PRODUCT))
    }
    report(
        sorted(folder for folder in folders if f"{folder}/__init__.py" not in present),
        "add __init__.py with a docstring to:",
    )


def test_the_command_exists() -> None:
    module, _, function = PROJECT["project"]["scripts"]["unistack-aot"].partition(":")
    path = ROOT / f"{module.replace('.', '/')}.py"
    assert path.is_file(), f"pyproject.toml names {module}, which does not exist"
    names = [
        node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    assert function in names, f"{module} has no function {function}"
