"""A small C-family statement tree and its printer; only this file writes newlines. Not here: what to print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never


@dataclass(frozen=True, slots=True)
class Line:
    """One simple statement or declaration, printed with its semicolon as given."""

    text: str


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment line."""

    text: str


@dataclass(frozen=True, slots=True)
class Directive:
    """A preprocessor line or pragma (without indentation rules of its own)."""

    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """`head { body } tail`: loops, functions, lambdas, conditionals."""

    head: str
    body: tuple[CNode, ...]
    tail: str = ""


CNode: TypeAlias = Line | Comment | Directive | Block


def render(nodes: tuple[CNode, ...]) -> str:
    """The text of a list of nodes, two spaces per level, ending with a newline."""
    lines: list[str] = []
    _write(nodes, 0, lines)
    return "\n".join(lines) + "\n"


def _write(nodes: tuple[CNode, ...], level: int, lines: list[str]) -> None:
    pad = "  " * level
    for node in nodes:
        match node:
            case Line():
                lines.append(pad + node.text)
            case Comment():
                lines.append(f"{pad}// {node.text}")
            case Directive():
                lines.append(node.text if node.text.startswith("#include") else pad + node.text)
            case Block():
                lines.append(f"{pad}{node.head} {{" if node.head else pad + "{")
                _write(node.body, level + 1, lines)
                lines.append(f"{pad}}}{node.tail}")
            case _:
                assert_never(node)
