"""Which words may stand where: targets' names, vague names, paths of one machine, loose ends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from .source import PRODUCT, ROOT, Source, files, report, sources

TARGET_WORDS = re.compile(
    r"cuda|nvcc|cubin|nvidia|\bptx|\bsass\b|\bsm_\d|avx|\bamx|\bsse\d|\bneon\b|x86", re.IGNORECASE
)
KNOW_TARGETS = tuple(
    f"unistack_aot/{part}"
    for part in ("targets/", "emulator/", "runtime/", "cli/", "hw/", "check/", "base/options.py")
)
# One file each, with the reason why it may name a target.
MAY_NAME_TARGETS = {
    "unistack_aot/base/environment.py": "UA_NVCC names the user's compiler",
}

VAGUE = re.compile(r"(^|_)(utils?|helpers?|misc)(_|\.|$)|^common(\.|$)|^(pm|new)_", re.IGNORECASE)
READS_VARIABLES = "unistack_aot/base/environment.py"
# [T] and the like keep this file from being its own offender
LOOSE_ENDS = re.compile(
    r"\b(?:[T]ODO|[F]IXME|[X]XX|[H]ACK)\b(?! *\(#\d+\))"
    r"|(?<![\w.])/(?:work|home|tmp|root)/|\.\./[s]hared"
)


def test_only_targets_know_targets() -> None:
    offenders: list[str] = []
    for source in sources("unistack_aot"):
        if source.path.startswith(KNOW_TARGETS) or source.path in MAY_NAME_TARGETS:
            continue
        for line, word in _words(source):
            if TARGET_WORDS.search(word):
                offenders.append(f"{source.path}:{line} {word[:60]!r}")
    report(offenders, "ask for a capability instead of naming a target:")


def test_exceptions_are_still_needed() -> None:
    by_path = {source.path: source for source in sources("unistack_aot")}
    report(
        [
            path
            for path in MAY_NAME_TARGETS
            if path not in by_path
            or not any(TARGET_WORDS.search(word) for _, word in _words(by_path[path]))
        ],
        "these files name no target any more; take them off MAY_NAME_TARGETS:",
    )


def test_names_are_words() -> None:
    offenders = [
        name for name in files() if any(VAGUE.search(part) for part in PurePosixPath(name).parts)
    ]
    for source in sources(*PRODUCT):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and VAGUE.search(node.name):
                offenders.append(f"{source.path}:{node.lineno} {node.name}")
    report(offenders, "name things by what they are, not util, common, helper, misc, new_:")


def test_environment_variables_are_read_in_one_file() -> None:
    offenders = [
        f"{source.path}:{node.lineno}"
        for source in sources(*PRODUCT)
        if source.path != READS_VARIABLES
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv")
    ]
    report(offenders, f"environment variables are read in {READS_VARIABLES} only:")


def test_environment_variables_are_few() -> None:
    text = (ROOT / READS_VARIABLES).read_text()
    names = sorted(set(re.findall(r"UA_[A-Z]+", text)))
    assert len(names) <= 6, f"at most six environment variables, not {len(names)}: {names}"
    macros = {
        macro
        for name in files()
        if name.endswith((".h", ".cuh"))
        for macro in re.findall(r"#\s*define (UA_[A-Z]+)\b", (ROOT / name).read_text())
    }
    elsewhere = [
        f"{source.path}: {name}"
        for source in sources(*PRODUCT, "scripts")
        for name in set(re.findall(r"\bUA_[A-Z]+\b", source.text)) - set(names) - macros
    ]
    report(elsewhere, "these variables are mentioned but never read:")


def test_no_loose_ends() -> None:
    offenders: list[str] = []
    for name in files():
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if found := LOOSE_ENDS.search(line):
                offenders.append(f"{name}:{number} {found[0]!r}")
    report(offenders, "no reminders without an issue number, no paths of one machine:")


def _words(source: Source) -> Iterator[tuple[int, str]]:
    """(line, word) for identifiers and strings; docstrings and comments are prose."""
    prose = {id(text) for text in _docstrings(source.tree)}
    for node in ast.walk(source.tree):
        match node:
            case ast.Constant(value=str(value)) if id(node) not in prose:
                yield node.lineno, value
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield node.lineno, name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    yield node.lineno, alias.name
                yield node.lineno, getattr(node, "module", None) or ""
            case _:
                pass


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that stand alone as a statement: docstrings of modules, functions and fields."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                yield text
            case _:
                pass
