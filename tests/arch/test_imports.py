"""Which module may import which: the contract in pyproject.toml, run by import-linter."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TypeGuard

from .source import PRODUCT, ROOT, report, sources

# Where a module is chosen while the program runs, so that one machine need not have what
# another has: the public face, the device backends of the runtime, the verbs of the command.
CHOSEN_AT_RUN_TIME = (
    "unistack_aot/__init__.py",
    "unistack_aot/runtime/",
    "unistack_aot/cli/",
    "probe_suite/gpu/device.py",  # a driver, real or emulated, must be chosen before pycuda loads
)


def test_layers() -> None:
    command = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert command, "import-linter is missing: pip install -e .[test]"
    done = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_runtime_reaches_only_artifact_and_base() -> None:
    allowed = ("artifact", "base", "runtime")
    report(
        [
            f"{source.path}:{line} imports unistack_aot.{layer}"
            for source in sources("unistack_aot/runtime")
            for layer, line in _layers_imported(source.tree, source.path)
            if layer not in allowed
        ],
        "a deployed machine has the runtime alone; it may import artifact and base only:",
    )


def test_probes_reach_only_what_a_kernel_needs() -> None:
    allowed = ("base", "hw", "targets", "emulator", "runtime")
    report(
        [
            f"{source.path}:{line} imports unistack_aot.{layer}"
            for source in sources("probe_suite")
            for layer, line in _layers_imported(source.tree, source.path)
            if layer not in allowed
        ],
        f"probe_suite may import {', '.join(allowed)} only:",
    )


def test_the_compiler_does_not_know_models_or_probes() -> None:
    offenders: list[str] = []
    for source in sources("unistack_aot"):
        if source.path.startswith("unistack_aot/cli/"):
            continue
        for node in ast.walk(source.tree):
            for name in _absolute_names(node):
                if name.split(".")[0] in ("models", "probe_suite", "tests", "scripts"):
                    offenders.append(f"{source.path}:{node.lineno} imports {name}")
    report(offenders, "only cli/ may present the probe suite and the model catalogue:")


def test_no_import_inside_functions() -> None:
    offenders: list[str] = []
    for source in sources():
        may_choose = not source.path.startswith(PRODUCT) or source.path.startswith(
            CHOSEN_AT_RUN_TIME
        )
        for function in source.functions():
            offenders += [
                f"{source.path}:{line} in {function.name}"
                for line in _inner_imports(function, by_name=not may_choose)
            ]
    report(sorted(set(offenders)), "import at the top of the file; a cycle is the fault itself:")


def _inner_imports(function: ast.AST, by_name: bool) -> list[int]:
    """Lines of import statements in a function, and of import_module calls with by_name."""
    return [
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) or (by_name and _imports_by_name(node))
    ]


def _imports_by_name(node: ast.AST) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ("import_module", "__import__")


def _absolute_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [node.module or ""]
    return []


def _layers_imported(tree: ast.Module, path: str) -> list[tuple[str, int]]:
    """(layer, line) for each import of a part of unistack_aot, relative or absolute."""
    package = path.removesuffix(".py").split("/")[:-1]
    found: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            home = [*base, *(node.module or "").split(".")] if node.module else base
            names = [[*home, alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        found += [
            (parts[1], node.lineno) for parts in names if parts[0] == "unistack_aot" and parts[1:]
        ]
    return sorted(set(found))
