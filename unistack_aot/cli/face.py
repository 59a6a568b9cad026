"""What all verbs share of their looks: lines, aligned tables, one JSON document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Facts = dict[str, Any]


class Face:
    """Where a verb speaks: to a person line by line, or to a machine once, at the end."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.facts: Facts = {}

    def say(self, line: str = "") -> None:
        """A line for a person."""
        if not self.as_json and not self.quiet:
            print(line, flush=True)

    def fact(self, **facts: Any) -> None:
        """Values for the JSON document."""
        self.facts.update(facts)

    def table(self, rows: Sequence[Sequence[object]], indent: str = "  ", right: str = "") -> None:
        """Aligned columns; `right` marks right-aligned ones: "lr" is left, right, then left."""
        for line in columns(rows, right):
            self.say(f"{indent}{line}")

    def finish(self) -> None:
        """Print the JSON document, if that is what was asked for."""
        if self.as_json:
            print(json.dumps(self.facts, indent=2, default=str))


def columns(rows: Sequence[Sequence[object]], right: str = "") -> list[str]:
    """Rows as lines with aligned columns."""
    texts = [[str(cell) for cell in row] for row in rows]
    width = max((len(row) for row in texts), default=0)
    widths = [max((len(row[k]) for row in texts if k < len(row)), default=0) for k in range(width)]
    return [
        "  ".join(
            cell.rjust(widths[k]) if right[k : k + 1] == "r" else cell.ljust(widths[k])
            for k, cell in enumerate(row)
        ).rstrip()
        for row in texts
    ]


def size(nbytes: float) -> str:
    """Bytes for a person: 351 MB, 3.1 MB, 512 KB, 17 B."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= factor:
            value = nbytes / factor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{nbytes:.0f} B"


def duration(seconds: float) -> str:
    """Seconds for a person: 1.24 s, 3.5 ms, 820 us."""
    if seconds >= 1:
        return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def plural(count: int, noun: str) -> str:
    """1 kernel, 2 kernels."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
