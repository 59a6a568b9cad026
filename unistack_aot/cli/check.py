"""`unistack-aot check MODEL PACKAGE`: accuracy, output by output."""

from __future__ import annotations

import argparse
from pathlib import Path

from unistack_aot.artifact.reader import open_package
from unistack_aot.base.errors import BadInput
from unistack_aot.check import check
from unistack_aot.cli.compile import dims_of, facts_of
from unistack_aot.cli.face import Face
from unistack_aot.cli.inputs import named_files, read_feeds

EXAMPLE = "unistack-aot check bert.onnx bert.pkg --dim batch=1..3..8"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("model", type=Path, help="the .onnx file that was compiled")
    parser.add_argument("package", type=Path, help="the package")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda:0, emulator, auto")
    parser.add_argument("--threads", type=int, help="CPU threads (default: one per core)")
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="sizes to try: batch=8 or batch=1..3..8 (default: lowest, typical, highest)",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="inputs of your own instead of random ones: .npy each, or one .npz",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs")
    parser.add_argument(
        "--no-bisect", action="store_true", help="do not look for the first wrong value"
    )


def run(options: argparse.Namespace, face: Face) -> int:
    """Check; 1 if an output is wrong."""
    dims = {name: (r.low, r.typical, r.high) for name, r in dims_of(options.dim).items()}
    if options.input and dims:
        raise BadInput("--input and --dim together", hint="the arrays already have sizes")
    feeds = None
    if options.input:
        inputs = open_package(options.package).manifest.inputs
        feeds = read_feeds(named_files(options.input), inputs)
    verdict = check(
        options.model,
        options.package,
        options.device,
        dims,
        feeds,
        options.seed,
        options.threads,
        not options.no_bisect,
    )
    for line in str(verdict).split("\n"):
        face.say(line)
    face.fact(**facts_of(verdict))
    return 0 if verdict.passed else 1
