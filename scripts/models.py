"""Lists, builds, describes and checks the models of the catalogue: list, build, ops, check, page."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx

# Run as a file, this script would itself answer to the name of the package it imports.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models import records
from models.catalogue import CATALOGUE, Entry, entry
from models.judged import Judged, judged
from models.records import Record
from models.report import page
from models.summary import summarize
from unistack_aot.base.errors import UnistackError


def main(arguments: list[str]) -> int:
    """Run one verb; returns the exit code: 0 good, 1 a check failed, 2 bad input."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except UnistackError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/models.py",
        description="Models to compile and measure.",
        epilog="example: scripts/models.py build bert_small -o bert.onnx",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="name every model, its kind, its cases")
    listing.set_defaults(run=_list)
    build = verbs.add_parser("build", help="write one model to an ONNX file")
    build.add_argument("name")
    build.add_argument("-o", "--output", type=Path, help="default: NAME.onnx")
    build.set_defaults(run=_build)
    ops = verbs.add_parser("ops", help="print operators and variants as Markdown")
    ops.add_argument("names", nargs="*", help="default: all of the chosen kinds")
    ops.set_defaults(run=_ops)
    check = verbs.add_parser("check", help="compile models, and judge every case of theirs")
    check.add_argument("names", nargs="*", help="default: all that are judged there")
    check.add_argument("--device", choices=("cpu", "emulator"), default="cpu")
    check.add_argument("--arch", default="sm_90", help="generation that the emulator runs")
    check.add_argument("--packages", type=Path, help="folder to keep the packages in")
    check.add_argument(
        "--record", type=Path, metavar="FILE", help="keep verdicts; redo what changed"
    )
    check.add_argument(
        "--any-compiler", action="store_true", help="verdicts of other sources need not be redone"
    )
    check.set_defaults(run=_check)
    shown = verbs.add_parser("page", help="write docs/models.md from recorded verdicts")
    shown.add_argument("--record", type=Path, metavar="FILE", default=Path("docs/models.json"))
    shown.add_argument("-o", "--output", type=Path, default=Path("docs/models.md"))
    shown.set_defaults(run=_page)
    for verb in (listing, ops, check):
        verb.add_argument("--kind", choices=("small", "full", "file"), action="append")
    return parser


def _chosen(options: argparse.Namespace) -> list[Entry]:
    return [item for item in CATALOGUE if options.kind is None or item.kind in options.kind]


def _list(options: argparse.Namespace) -> None:
    for item in _chosen(options):
        print(f"{item.name:28} {item.kind:6} {', '.join(item.cases)}")


def _build(options: argparse.Namespace) -> None:
    item = entry(options.name)
    target = options.output or Path(f"{item.name}.onnx")
    start = time.perf_counter()
    model = item.load()
    onnx.save(model, str(target))
    seconds = time.perf_counter() - start
    size = target.stat().st_size / 1e6
    print(f"wrote {target}  {size:.1f} MB, {len(model.graph.node)} nodes, in {seconds:.1f} s")
    for name, sizes in item.dims(model).items():
        print(f"  --dim {name}={','.join(map(str, sizes))}")


def _ops(options: argparse.Namespace) -> None:
    items = [entry(name) for name in options.names] or _chosen(options)
    print(page({item.name: summarize(item.load()) for item in items}))


def _check(options: argparse.Namespace) -> int:
    items = [entry(name) for name in options.names] or [
        item for item in _chosen(options) if records.wanted(item, options.device)
    ]
    states: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="models-") as scratch:
        folder = options.packages or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for item in items:
            start = time.perf_counter()
            found, news = _found(item, options, folder)
            states[found.state] += 1
            seconds = f"{time.perf_counter() - start:.0f} s in all" if news else "as recorded"
            print(f"{item.name}  {found.sentence}  ({seconds})", flush=True)
    print(", ".join(f"{count} {state}" for state, count in states.items()), f"on {options.device}")
    return int(bool(states["wrong"] or states["failed"]))


def _found(item: Entry, options: argparse.Namespace, folder: Path) -> tuple[Judged, bool]:
    """The verdict on a model, and whether it is a new one."""
    target = "cpu" if options.device == "cpu" else f"emulator:{options.arch}"
    model = item.load()
    if options.record is None:
        return judged(item, model, target, folder), True
    record = _record(item, model, options.record)
    known = record.findings.get(options.device)
    if known and (options.any_compiler or known.compiler == records.compiler()):
        return known.found, False
    found = judged(item, model, target, folder)
    record = _record(item, model, options.record)  # another run may have added to it meanwhile
    findings = {**record.findings, options.device: records.dated(found)}
    kept = {**records.read(options.record), item.name: replace(record, findings=findings)}
    records.write(options.record, kept)
    return found, True


def _record(item: Entry, model: onnx.ModelProto, path: Path) -> Record:
    """What is known about this very model; nothing where it has changed."""
    record = records.fresh(item, model)
    old = records.read(path).get(item.name)
    return old if old and old.content == record.content else record


def _page(options: argparse.Namespace) -> None:
    options.output.write_text(records.page(records.read(options.record)), encoding="utf-8")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
