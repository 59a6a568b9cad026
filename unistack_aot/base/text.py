"""A builder of indented text, for dumps and program listings. Not here: C syntax (codegen/)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class Lines:
    """Lines of text with a current depth; `str()` gives the text, ending in one newline."""

    __slots__ = ("_depth", "_lines", "_step")

    def __init__(self, step: str = "  ") -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._step = step

    def add(self, line: str = "") -> None:
        """Append a line at the current depth; text with newlines becomes several."""
        for part in line.split("\n"):
            self._lines.append(self._step * self._depth + part if part else "")

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Generator[None]:
        """Append head, what is added inside one step deeper, and tail (none if empty)."""
        self.add(head)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if tail:
            self.add(tail)

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n" if self._lines else ""


def table(rows: list[tuple[str, ...]], gap: str = "  ") -> list[str]:
    """Rows as lines with columns aligned to the left, two spaces apart by default."""
    columns = max((len(row) for row in rows), default=0)
    widths = [max((len(row[c]) for row in rows if c < len(row)), default=0) for c in range(columns)]
    return [
        gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]
