"""What a check found, and its short table. Not here: finding it (checker.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Judge = Literal["onnxruntime", "float64"]


@dataclass(frozen=True, slots=True)
class OutputResult:
    """One output of one case: its worst error and what is allowed, both in ulp-scaled units.

    The unit is the spacing of the output's type at max(|element|, rms). Integers and bools count
    the elements that differ.
    """

    case: str
    output: str
    dtype: str
    error: float
    allowed: float
    judge: Judge
    passed: bool
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first value that is wrong: what it is, its ONNX nodes, error and tolerance."""

    value: str
    nodes: tuple[str, ...]
    error: float
    allowed: float
    remark: str = ""

    def __str__(self) -> str:
        if not self.value:
            return self.remark
        where = ", ".join(self.nodes) or "a value of no single ONNX node"
        line = f"first wrong value: {where}\n  {self.value}"
        if self.error or self.allowed:
            line += f"\n  off by {shown(self.error)} of {shown(self.allowed)} allowed"
        return f"{line}\n  {self.remark}" if self.remark else line


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a package computes what its model means; true if it does."""

    model: str
    package: str
    device: str
    results: tuple[OutputResult, ...]
    remarks: tuple[str, ...] = ()
    culprit: Culprit | None = None

    @property
    def passed(self) -> bool:
        """Whether every output of every case is within its tolerance."""
        return bool(self.results) and all(result.passed for result in self.results)

    def __bool__(self) -> bool:
        return self.passed

    @property
    def worst(self) -> OutputResult:
        """The result that uses most of its tolerance."""
        return max(self.results, key=lambda r: (not r.passed, r.error / (r.allowed or 1.0)))

    @property
    def judges(self) -> str:
        """Who was asked: "onnxruntime", "float64" or both."""
        return " and ".join(dict.fromkeys(result.judge for result in self.results))

    @property
    def cases(self) -> tuple[str, ...]:
        """The cases that were run, in order."""
        return tuple(dict.fromkeys(result.case for result in self.results))

    def __str__(self) -> str:
        return "\n".join([*table(self.results), *self.remarks, *self._last()])

    def _last(self) -> list[str]:
        lines = [] if self.culprit is None else str(self.culprit).split("\n")
        wrong = sum(not result.passed for result in self.results)
        count = f"{len(self.results)} outputs"
        good = f"good: {count} within tolerance on {self.device}"
        bad = f"wrong: {wrong} of {count} on {self.device}"
        return [*lines, bad if wrong else good]


def shown(number: float) -> str:
    """A figure with three digits at most."""
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"


def table(results: tuple[OutputResult, ...]) -> list[str]:
    """The results as aligned lines of text, a heading first."""
    rows = [("case", "output", "type", "error", "allowed", "against", "")]
    rows += [
        (
            result.case or "-",
            result.output,
            result.dtype,
            shown(result.error),
            shown(result.allowed),
            result.judge,
            " ".join(filter(None, ("ok" if result.passed else "WRONG", result.remark))),
        )
        for result in results
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if k in (3, 4) else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
