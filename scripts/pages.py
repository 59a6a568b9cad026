"""Puts what a script measured between its marks in a page of the documentation."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def put(page: str, first: str, last: str, text: str) -> None:
    """Replace what lies between two marks; a page without them is left alone, and said so."""
    path = DOCS / page
    before, mark, rest = path.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not mark or not end:
        raise SystemExit(f"error: {path} has no '{first}' before '{last}'")
    path.write_text(f"{before}{first}\n\n{text}\n\n{last}{after}", encoding="utf-8")


def table(rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; its first row is the head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{'---|' * len(rows[0])}", *lines[1:]])
