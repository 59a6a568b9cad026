"""`unistack-aot probe`: measure this machine with the Probing Lab, or compare two maps."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from unistack_aot.base.errors import BadInput, MissingTool
from unistack_aot.base.measured import quantity
from unistack_aot.cli.face import Face
from unistack_aot.hw.catalogue import find_map
from unistack_aot.hw.property import Property
from unistack_aot.hw.propmap import Difference, diff

EXAMPLE = "unistack-aot probe --device cpu -o map.json; unistack-aot probe diff map.json h100-sxm"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="diff A B",
        help="compare two maps: files, or ids of built-in maps",
    )
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda:0, emulator:sm_90")
    parser.add_argument("--only", action="append", default=[], metavar="PROBE", help="repeatable")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("map.json"),
        help="the map (default: map.json); records and report.html go into a folder of its name",
    )
    parser.add_argument("--limit", type=float, metavar="S", help="seconds that one probe may take")
    parser.add_argument("--fast", action="store_true", help="fewer repetitions")


def run(options: argparse.Namespace, face: Face) -> int:
    """Probe, or compare; 1 if the measurements contradict each other."""
    match options.words:
        case []:
            return _measured(options, face)
        case ["diff", before, after]:
            return _compared(before, after, face)
        case _:
            raise BadInput(
                f"'{' '.join(options.words)}' can not be understood",
                hint="write: unistack-aot probe diff a.json b.json",
            )


def _measured(options: argparse.Namespace, face: Face) -> int:
    try:
        lab = import_module("probe_suite.run")
    except ImportError as error:
        raise MissingTool(
            f"the Probing Lab cannot be loaded ({error})",
            hint="install the full package: pip install 'unistack-aot[report]'",
        ) from error
    done = lab.main_probe(
        options.device, options.only, options.output, options.limit, options.fast, face.say
    )
    face.fact(
        map=str(done.map_path),
        report=str(done.report_path),
        contradictions=list(done.contradictions),
        probes={record.probe: record.state for record in done.records},
    )
    return 1 if done.contradictions else 0


def _compared(before: str, after: str, face: Face) -> int:
    """One line per property that differs, and which map alone has one."""
    left, right = find_map(before), find_map(after)
    found = diff(left, right)
    rows = [("property", left.id, right.id, "ratio"), *(_row(each) for each in found)]
    face.say(f"{left.device} ({left.date})  ->  {right.device} ({right.date})")
    face.table(rows, right="lrrr")
    same = len(set(left.properties) | set(right.properties)) - len(found)
    face.say(f"{len(found)} properties differ, {same} are equal")
    face.fact(
        before=left.id,
        after=right.id,
        differences=[
            {
                "property": each.name,
                "before": each.before and each.before.value,
                "after": each.after and each.after.value,
                "ratio": each.ratio,
            }
            for each in found
        ],
    )
    return 0


def _row(each: Difference) -> tuple[str, str, str, str]:
    ratio = f"{each.ratio:.2f} x" if each.ratio is not None else ""
    if each.before is None or each.after is None:
        ratio = f"only in the {'second' if each.before is None else 'first'}"
    return each.name, _shown(each.before), _shown(each.after), ratio


def _shown(entry: Property | None) -> str:
    return "-" if entry is None else quantity(entry.value, entry.unit)
