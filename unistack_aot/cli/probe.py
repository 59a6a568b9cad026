"""`unistack-aot probe`: measure this machine with the Probing Lab."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from unistack_aot.base.errors import MissingTool
from unistack_aot.cli.face import Face

EXAMPLE = "unistack-aot probe --device cpu --out probe-out"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda:0, emulator:sm_90")
    parser.add_argument("--only", action="append", default=[], metavar="PROBE", help="repeatable")
    parser.add_argument("--out", type=Path, default=Path("probe-out"), help="folder for results")
    parser.add_argument("--limit", type=float, metavar="S", help="seconds that one probe may take")
    parser.add_argument("--fast", action="store_true", help="fewer repetitions")


def run(options: argparse.Namespace, face: Face) -> int:
    """Probe; 1 if the measurements contradict each other."""
    try:
        lab = import_module("probe_suite.run")
    except ImportError as error:
        raise MissingTool(
            f"the Probing Lab cannot be loaded ({error})",
            hint="install the full package: pip install 'unistack-aot[report]'",
        ) from error
    done = lab.main_probe(
        options.device, options.only, options.out, options.limit, options.fast, face.say
    )
    face.fact(
        map=str(done.map_path),
        report=str(done.report_path),
        contradictions=list(done.contradictions),
        probes={record.probe: record.state for record in done.records},
    )
    return 1 if done.contradictions else 0
