"""`unistack-aot MODEL -o FILE`: compile, test the result, say what came of it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from unistack_aot.artifact.reader import open_package
from unistack_aot.base.errors import BadInput, UnistackError
from unistack_aot.base.options import DimRange, Options, parse_dim
from unistack_aot.check import Verdict, check, compile_model
from unistack_aot.check.compile import Tuning, compile_from
from unistack_aot.check.verdict import shown, table
from unistack_aot.cli.dump import Dump
from unistack_aot.cli.face import Face, duration, plural, size
from unistack_aot.cli.memory import memory_line
from unistack_aot.cli.progress import progress
from unistack_aot.cli.restart import stage_of
from unistack_aot.cli.targets import default_targets
from unistack_aot.hw.catalogue import find_map
from unistack_aot.packing import VariantReport
from unistack_aot.pipeline import Report
from unistack_aot.runtime.devices import gpu_present
from unistack_aot.stages import Hooks, Planned, Ruled, Stage

EXAMPLE = "unistack-aot bert.onnx -o bert.pkg --target cpu --dim batch=1..8"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("model", type=Path, nargs="?", help="an .onnx file")
    parser.add_argument("-o", "--output", type=Path, help="the package (default: MODEL.pkg)")
    parser.add_argument(
        "--target",
        action="append",
        help="cpu, cpu:LEVEL, cuda, cuda:sm_90, emulator:sm_90; repeat for several "
        "(default: all whose tools are here)",
    )
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="batch=8, batch=1..8 or batch=1..4..8 (lowest, typical, highest)",
    )
    parser.add_argument(
        "--precision", metavar="TYPE", help="of contractions: f32 (default), tf32, f16, bf16"
    )
    parser.add_argument(
        "--convolution",
        metavar="FORM",
        help="fast (default), or direct: the sum of the definition, with the smallest errors",
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="FILE",
        help="property map of the machine to build for (`unistack-aot probe` makes one), or the id "
        "of a built-in one; repeat for several architectures",
    )
    parser.add_argument(
        "--tune",
        type=float,
        metavar="SECONDS",
        help="measure ways of each kernel here for so long per variant; 0 takes what is known",
    )
    parser.add_argument(
        "--tuning", type=Path, metavar="DIR", help="folder of measured times (default: in UA_CACHE)"
    )
    parser.add_argument("--no-check", action="store_true", help="do not compare with onnxruntime")
    parser.add_argument("--no-golden", action="store_true", help="record no run for the self-test")
    _looks(parser)


def _looks(parser: argparse.ArgumentParser) -> None:
    """Arguments that show or replace stages."""
    looks = parser.add_argument_group("looking inside")
    looks.add_argument("--dump", type=Path, metavar="DIR", help="write every stage as text")
    looks.add_argument(
        "--verify",
        type=int,
        metavar="LEVEL",
        help="verify 1: at stage borders (default), 2: after each pass, 3: after each rewrite, by evaluation",
    )
    looks.add_argument("--ptx", action="store_true", help="with --dump: PTX of CUDA targets too")
    looks.add_argument(
        "--from",
        dest="start",
        type=Path,
        metavar="FILE",
        help="go on from a dumped stage; with MODEL, the result is checked against it",
    )
    looks.add_argument(
        "--override", type=Path, metavar="DIR", help="stages that replace those of the same name"
    )


def run(options: argparse.Namespace, face: Face) -> int:
    """Compile; 1 if the result fails its check."""
    output = _output(options)
    start, asked = _asked(options)
    if options.ptx and not options.dump:
        raise BadInput("--ptx without --dump", hint="say where to write it: --dump DIR")
    origins = start.origins if isinstance(start, Ruled) else None
    watch = Dump(options.model, options.dump, options.override, asked, origins, options.ptx)
    with progress(face) as bars:
        hooks = Hooks(progress=bars, watch=watch)
        golden = not options.no_golden
        if start is not None:
            report = compile_from(start, options.model, output, asked, hooks, golden)
        else:
            sizes = {name: (size.low, size.typical, size.high) for name, size in asked.dims}
            report = compile_model(
                options.model,
                output,
                asked.targets,
                sizes,
                asked.precision,
                golden,
                options.override,
                hooks,
                asked.convolution,
                [find_map(name) for name in options.map],
                _tuning(options, face),
                asked.verify,
            )
    watch.finish()
    _present(report, face)
    verdicts: list[Verdict] = []
    if options.model is None:
        face.say("  not checked      without the model there is nothing to compare with")
        face.fact(not_checked={"model": "not given"}, checks=[])
    elif not options.no_check:
        verdicts = _checked(options.model, report, face)
    face.say(
        f"wrote {output}  {size(report.written.nbytes)}  sha256 {report.written.sha256[:16]}..."
    )
    face.fact(
        package=str(output),
        bytes=report.written.nbytes,
        sha256=report.written.sha256,
        golden=report.golden,
    )
    if options.dump:
        face.say(f"stages are in {options.dump}/index.txt")
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def _output(options: argparse.Namespace) -> Path:
    if options.model is None and options.start is None:
        raise BadInput("no model is given", hint="unistack-aot MODEL.onnx -o FILE.pkg")
    if options.output is not None:
        return options.output
    if options.model is None:
        raise BadInput("no name for the package", hint="give -o FILE.pkg")
    return options.model.with_suffix(".pkg").absolute()


def _asked(options: argparse.Namespace) -> tuple[Stage | None, Options]:
    """The stage to begin with, if not with the model, and what was asked for.

    A stage keeps the sizes, precision, convolution and targets that it was dumped under, unless others are given.
    """
    written = tuple(options.target or ())
    if options.start is None:
        asked = Options(
            targets=written or default_targets(),
            dims=tuple(sorted(dims_of(options.dim).items())),
            precision=options.precision or "f32",
            convolution=options.convolution or "fast",
            override=options.override,
        )
        return None, _verified(asked, options)
    if options.map or options.tune is not None:
        raise BadInput("--from with --map or --tune", hint="begin with the model")
    if options.override is not None:
        raise BadInput("--from and --override together", hint="put the stage into the folder")
    if options.dim:
        raise BadInput("--from and --dim together", hint="a stage keeps the sizes of its dump")
    stage, dumped = stage_of(options.start)
    targets = written or ((stage.target,) if isinstance(stage, Planned) else dumped.targets)
    precision = options.precision or dumped.precision
    changed = replace(dumped, targets=targets, precision=precision, start=options.start)
    changed = replace(changed, convolution=options.convolution or dumped.convolution)
    return stage, _verified(changed, options)


def _verified(asked: Options, options: argparse.Namespace) -> Options:
    return asked if options.verify is None else replace(asked, verify=options.verify)


def _tuning(options: argparse.Namespace, face: Face) -> Tuning | None:
    if options.tune is None:
        if options.tuning is not None:
            raise BadInput("--tuning alone does nothing", hint="add --tune SECONDS, or --tune 0")
        return None
    if not 0 <= options.tune < 1e6:
        raise BadInput(f"--tune {options.tune:g} is no number of seconds", hint="give 0 or more")
    return Tuning(options.tune, options.tuning, lambda line: face.say(f"  tuning           {line}"))


def dims_of(written: list[str]) -> dict[str, DimRange]:
    """The --dim arguments by name; BadInput if one is given twice."""
    found: dict[str, DimRange] = {}
    for each in written:
        name, sizes = parse_dim(each)
        if name in found:
            raise BadInput(f"dimension {name!r} is given twice", hint="give each --dim once")
        found[name] = sizes
    return found


def _present(report: Report, face: Face) -> None:
    kernels = max((v.kernels for v in report.variants), default=0)
    rules = report.rules
    done = (
        "rules: done before"
        if rules is None
        else f"rules: {rules.total} fired; {rules.before} values in, {rules.after} out"
    )
    face.say(
        f"{report.model}  {plural(report.onnx_nodes, 'node')}, opset {report.opset}  ->  "
        f"{plural(kernels, 'kernel')}  ({done})"
    )
    manifest = open_package(report.written.path).manifest
    memory = {variant.target: memory_line(manifest, variant) for variant in manifest.variants}
    face.table(
        [
            (
                variant.target,
                plural(variant.kernels, "kernel"),
                f"built in {duration(variant.build_seconds)}",
                memory[variant.target],
                f"predicted {duration(variant.predicted)}{_sizes(variant)}",
            )
            for variant in report.variants
        ],
        right="lrlll",
    )
    for variant in report.variants:
        if variant.tuned:
            face.say(f"  tuned            {variant.target}: {variant.tuned}")
    for remark in report.remarks:
        face.say(f"  note             {remark}")
    face.fact(
        model=report.model,
        nodes=report.onnx_nodes,
        opset=report.opset,
        rules_fired=None if rules is None else rules.total,
        seconds=dict(report.seconds),
        remarks=list(report.remarks),
        variants=[
            {
                "target": v.target,
                "kernels": v.kernels,
                "launches": v.launches,
                "build_seconds": v.build_seconds,
                "predicted_seconds": v.predicted,
                "predicted_at": dict(v.at),
                "map": v.map,
                "tuned": v.tuned,
            }
            for v in report.variants
        ],
    )


def _sizes(variant: VariantReport) -> str:
    at = ", ".join(f"{name} {number}" for name, number in variant.at.items())
    return f" at {at}" if at else ""


def _checked(model: Path, report: Report, face: Face) -> list[Verdict]:
    """Check every kind of variant that runs here: a GPU's own only where there is a GPU."""
    families = dict.fromkeys(variant.target.partition(":")[0] for variant in report.variants)
    verdicts: list[Verdict] = []
    missing: dict[str, str] = {}
    for device in families:
        if device == "cuda" and not gpu_present():
            missing[device] = "no GPU on this machine"
            continue
        start = perf_counter()
        try:
            verdict = check(model, report.written.path, device=device)
        except UnistackError as error:
            missing[device] = error.what
            continue
        except MemoryError:
            missing[device] = "there is not enough memory for it"
            continue
        verdicts.append(verdict)
        _present_verdict(verdict, perf_counter() - start, face)
    for device, reason in missing.items():
        face.say(f"  not checked      {device}: {reason}")
    face.fact(not_checked=missing, checks=[facts_of(verdict) for verdict in verdicts])
    return verdicts


def _present_verdict(verdict: Verdict, seconds: float, face: Face) -> None:
    if verdict.passed:
        worst = verdict.worst
        face.say(
            f"  checked          {verdict.device} against {verdict.judges}: worst "
            f"{shown(worst.error)} ulp-scaled of {shown(worst.allowed)} allowed"
            f"  ({_briefly(verdict.cases)}; {duration(seconds)})"
        )
    else:
        face.say(f"  check FAILED on {verdict.device}")
        for line in [*table(verdict.results), *str(verdict.culprit or "").split("\n")]:
            face.say(f"    {line}")
    for remark in verdict.remarks:
        face.say(f"                   {remark}")


def _briefly(cases: tuple[str, ...]) -> str:
    named = [case for case in cases if case]
    return "; ".join(named) if named else "fixed sizes"


def facts_of(verdict: Verdict) -> dict[str, object]:
    """A verdict for the JSON document."""
    return {
        "passed": verdict.passed,
        "device": verdict.device,
        "results": [
            {
                "case": r.case,
                "output": r.output,
                "dtype": r.dtype,
                "error": r.error,
                "allowed": r.allowed,
                "judge": r.judge,
                "passed": r.passed,
                "remark": r.remark,
            }
            for r in verdict.results
        ],
        "remarks": list(verdict.remarks),
        "culprit": None if verdict.culprit is None else str(verdict.culprit),
    }
