"""Exports PyTorch architectures with both of its exporters, compiles them, and compares with onnxruntime.

`export` needs `pip install torch torchvision transformers onnxscript` (in whatever environment);
`check` needs only the project. Files go to a folder between the two.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

# Run as a file, this script finds the packages beside its folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    from models import exporting
except ImportError:  # torch is no dependency of the project
    exporting = None
import unistack_aot as ua
from unistack_aot.base.errors import UnistackError, Unsupported
from unistack_aot.check.verdict import shown

FORMS = ("traced", "traced-free", "dynamo", "dynamo-free")
APART = 1e-3  # from PyTorch's result, of its root mean square: its kernels sum in other orders
Feeds = Mapping[str, "np.ndarray[Any, Any]"]


def main(arguments: list[str]) -> int:
    """Run one verb; 1 if a model is wrong."""
    options = _parser().parse_args(arguments)
    options.cache.mkdir(parents=True, exist_ok=True)
    return options.run(options)


def verdict(path: Path) -> tuple[str, str]:
    """Right, wrong, refused or failed, and why: against onnxruntime, and against PyTorch."""
    stored = np.load(path.with_suffix(".npz"))
    feeds = {name: stored[name] for name in stored.files if name != "y"}
    with tempfile.TemporaryDirectory(prefix="exports-") as folder:
        package = Path(folder) / "model.pkg"
        try:
            ua.compile_model(path, package, targets=("cpu:x86-64-v3",), golden=False)
            found = [ua.check(path, package, feeds=each) for each in variants(path, feeds)]
            got = ua.load(package, device="cpu").run(feeds)["y"]
        except Unsupported as refusal:
            return "refused", " ".join(str(refusal.what).split("\n")[-1].split())
        except UnistackError as error:
            return "failed", " ".join(str(error).split())
    wrong = [each for each in found if not each.passed]
    if wrong:
        return "wrong", str(wrong[0]).replace("\n", " / ")
    apart = float(np.abs(got - stored["y"]).max() / np.sqrt(np.mean(stored["y"] ** 2)))
    worst = max((each.worst for each in found), key=lambda w: w.error / (w.allowed or 1))
    words = f"{shown(worst.error)} of {shown(worst.allowed)}, {apart:.1e} from PyTorch"
    return ("right" if apart < APART else "wrong"), words


def variants(path: Path, feeds: Feeds) -> list[Feeds]:
    """The recorded inputs; where the batch is free also three times its first element."""
    if not path.stem.endswith("-free"):
        return [feeds]
    return [feeds, {name: np.repeat(array[:1], 3, 0) for name, array in feeds.items()}]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/exports.py",
        description=__doc__,
        epilog="example: scripts/exports.py export bert --form dynamo-free; scripts/exports.py check",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for name, run, about in (("export", _export, "write models"), ("check", _check, "judge them")):
        verb = verbs.add_parser(name, help=about)
        verb.add_argument("names", nargs="*", help="default: all")
        verb.add_argument("--form", choices=FORMS, action="append", help="default: all four")
        verb.add_argument("--cache", type=Path, default=Path.home() / ".cache/unistack_aot/exports")
        verb.set_defaults(run=run)
    return parser


def _export(options: argparse.Namespace) -> int:
    if exporting is None:
        hint = "pip install torch torchvision transformers onnxscript"
        print(f"error: PyTorch or a part of it is missing\n  do: {hint}", file=sys.stderr)
        return 2
    for name in options.names or exporting.RECIPES:
        for form in options.form or FORMS:
            print(f"{name:20} {form:12} {exporting.export(name, form, options.cache)}", flush=True)
    return 0


def _check(options: argparse.Namespace) -> int:
    forms = options.form or FORMS
    paths = [
        path
        for path in sorted(options.cache.glob("*.onnx"))
        if path.stem.rpartition(".")[2] in forms
        and (not options.names or path.stem.rpartition(".")[0] in options.names)
    ]
    states: Counter[str] = Counter()
    for path in paths:
        begin = time.perf_counter()
        state, words = verdict(path)
        states[state] += 1
        seconds = time.perf_counter() - begin
        print(f"{path.stem:34} {state:8} {words}  ({seconds:.0f} s)", flush=True)
    print(", ".join(f"{count} {state}" for state, count in states.items()) or "no files")
    return int(bool(states["wrong"] or states["failed"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
