"""The shape of the code: sizes, nesting, docstrings, types of public functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .source import PRODUCT, ROOT, Function, Source, files, report, sources

FILE_LINES = 500
FUNCTION_LINES = 60
NESTING = 4
TEXT_ENDINGS = (".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".sh")


def test_files_are_short() -> None:
    offenders: list[str] = []
    for name in files():
        if name.endswith("_pb2.py") or not name.endswith((".py", *TEXT_ENDINGS)):
            continue
        lines = (ROOT / name).read_text().count("\n")
        if lines > FILE_LINES:
            offenders.append(f"{name}: {lines} lines")
    report(offenders, f"split files of more than {FILE_LINES} lines by noun:")


def test_functions_are_short() -> None:
    offenders: list[str] = []
    for source in sources():
        for function in source.functions():
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > FUNCTION_LINES:
                offenders.append(f"{source.path}:{function.lineno} {function.name}: {lines} lines")
    report(offenders, f"split functions of more than {FUNCTION_LINES} lines:")


def test_nesting_is_shallow() -> None:
    offenders: list[str] = []
    for source in sources():
        for function in source.functions():
            depth = max((_depth(child) for child in function.body), default=0)
            if depth > NESTING:
                offenders.append(f"{source.path}:{function.lineno} {function.name}: {depth} deep")
    report(offenders, f"flatten functions nested deeper than {NESTING}:")


def test_modules_say_what_belongs_there() -> None:
    report(
        [source.path for source in sources() if not _starts_well(ast.get_docstring(source.tree))],
        "begin each file with a docstring whose first sentence says what belongs there:",
    )


def test_public_functions_are_documented() -> None:
    offenders = [
        f"{source.path}:{function.lineno} {function.name}"
        for source in sources(*PRODUCT)
        for function, owner in _public_functions(source)
        if _needs_docstring(function, owner) and not _starts_well(ast.get_docstring(function))
    ]
    report(offenders, "give each public function a docstring that begins with one sentence:")


def test_public_functions_are_typed() -> None:
    offenders: list[str] = []
    for source in sources(*PRODUCT):
        for function, owner in _public_functions(source):
            # a scalar formula is evaluated on formulas, arrays and numbers alike
            if owner is not None and function.name == "scalar":
                continue
            bare = _untyped(function, method=owner is not None)
            if bare:
                offenders.append(f"{source.path}:{function.lineno} {function.name}: {bare}")
    report(offenders, "annotate arguments and results of public functions:")


def _starts_well(docstring: str | None) -> bool:
    """Whether there is a first line, and it begins a sentence that ends."""
    if not docstring or not docstring.strip():
        return False
    first = docstring.strip().split("\n\n")[0].rstrip()
    return "." in first or first.endswith((":", "?", "!"))


def _depth(node: ast.AST) -> int:
    """How deep control statements nest in a statement; elif is no deeper than its if."""
    if isinstance(node, Function | ast.ClassDef | ast.Lambda):
        return 0
    nested = isinstance(
        node, ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.Try | ast.Match
    )
    deepest = 0
    for child in ast.iter_child_nodes(node):
        below = _depth(child)
        if isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If):
            below -= 1
        deepest = max(deepest, below)
    return deepest + nested


def _public_functions(source: Source) -> Iterator[tuple[Function, ast.ClassDef | None]]:
    """(function, its class or None) for what other modules may call."""
    for node in source.tree.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node, None
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for part in node.body:
                if isinstance(part, Function) and not part.name.startswith("_"):
                    yield part, node


def _needs_docstring(function: Function, owner: ast.ClassDef | None) -> bool:
    """All but one-line methods, and methods that a base class has documented."""
    return owner is None or (not owner.bases and len(function.body) > 1)


def _untyped(function: Function, method: bool) -> str:
    arguments = [*function.args.posonlyargs, *function.args.args]
    bound = method and not any(
        isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in function.decorator_list
    )
    wanted = arguments[1:] if bound else arguments
    wanted += function.args.kwonlyargs
    wanted += [extra for extra in (function.args.vararg, function.args.kwarg) if extra]
    bare = [argument.arg for argument in wanted if argument.annotation is None]
    return ", ".join([*bare, *([] if function.returns is not None else ["result"])])
