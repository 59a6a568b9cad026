"""Compiles and runs the backend tests of the installed onnx package: right, refused with a reason, or wrong.

Operands that decide extents are made constants where the test gives them as inputs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import onnx

# Run as a file, this script finds the packages beside its folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.node_cases import node_cases
from models.node_judged import KNOWN, NodeVerdict, judged_cases

STATES = ("right", "other", "refused", "wrong", "failed")


def main(arguments: list[str]) -> int:
    """Judge the chosen tests; 1 if one is wrong or fails."""
    options = _parser().parse_args(arguments)
    begin = time.perf_counter()
    cases = node_cases(options.words)[options.first :: options.every]
    found: list[NodeVerdict] = []
    with tempfile.TemporaryDirectory(prefix="onnx-suite-") as folder:
        for verdict in judged_cases(cases, Path(folder), options.target, options.pack):
            found.append(verdict)
            if verdict.state in ("wrong", "failed"):
                print(verdict.sentence, flush=True)
    print("\n".join(table(found)))
    print(f"{summary(found)} on {options.target}, in {time.perf_counter() - begin:.0f} s")
    if options.markdown:
        options.markdown.write_text(page(found, options.target), encoding="utf-8")
        print(f"wrote {options.markdown}")
    return int(any(verdict.state in ("wrong", "failed") for verdict in found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/onnx_suite.py",
        description=__doc__,
        epilog="example: scripts/onnx_suite.py conv pool --target emulator:sm_80 --every 5",
    )
    parser.add_argument("words", nargs="*", help="parts of tests' names; default: all")
    parser.add_argument("--target", default="cpu:x86-64-v3")
    parser.add_argument("--pack", type=int, default=40, help="tests in one package")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th test")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--markdown", type=Path, help="write the page here")
    return parser


def summary(found: Sequence[NodeVerdict]) -> str:
    """How many there are of each verdict."""
    states = Counter(verdict.state for verdict in found)
    parts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    return f"{len(found)} tests: {parts}"


def counted(found: Sequence[NodeVerdict]) -> dict[str, Counter[str]]:
    """Verdicts by operator: the one that a test's name begins with, else its first node's."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in found:
        rows[verdict.case.subject][verdict.state] += 1
    return dict(sorted(rows.items()))


def table(found: Sequence[NodeVerdict]) -> list[str]:
    """One line per operator."""
    rows = counted(found)
    width = max(map(len, rows), default=0)
    return [
        f"{name:{width}}  " + "  ".join(f"{row[state]:4} {state}" for state in STATES if row[state])
        for name, row in rows.items()
    ]


def page(found: Sequence[NodeVerdict], target: str) -> str:
    """The verdicts as a page: the table, and every reason for a refusal."""
    lines = [
        "# The operator tests of ONNX",
        "",
        f"The backend tests of onnx {onnx.__version__}, compiled for `{target}` and run against the",
        f"outputs that they come with. {summary(found)}.",
        "",
        "These tests feed everything at run time; an operand that decides extents (a shape, axes, a",
        "number of elements) is made a constant where the model is refused otherwise. `_expanded` tests",
        "write an operator as its definition in others.",
        "",
        "Written by `scripts/onnx_suite.py --markdown docs/onnx_suite.md`.",
        "",
        "| operator | right | refused | wrong |",
        "|---|---:|---:|---:|",
    ]
    for name, row in counted(found).items():
        wrong = row["wrong"] + row["failed"]
        lines.append(f"| {name} | {row['right']} | {row['refused'] or ''} | {wrong or ''} |")
    differing = [verdict.case.name for verdict in found if verdict.state == "other"]
    if differing:
        lines += ["", "## Not followed", ""]
        lines += [f"* `{name}`: {KNOWN[name]}." for name in differing]
    lines += ["", "## Why tests are refused", "", "| tests | reason |", "|---:|---|"]
    reasons = Counter(v.why for v in found if v.state == "refused")
    lines += [f"| {count} | {why.replace('|', '/')} |" for why, count in reasons.most_common()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
