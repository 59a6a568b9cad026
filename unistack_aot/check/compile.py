"""The public `compile_model`: the pipeline, with recorded runs for the package's self-test.

Not here: the passes (pipeline.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from unistack_aot import pipeline
from unistack_aot.aicf.graph import Graph
from unistack_aot.base.environment import environment
from unistack_aot.base.errors import BadInput, UnistackError
from unistack_aot.base.options import DimRequest, Options
from unistack_aot.check.alike import differing_output
from unistack_aot.check.feeds import drawn
from unistack_aot.check.golden import golden_set
from unistack_aot.check.oracles import Feeds
from unistack_aot.check.tolerance import Rounding
from unistack_aot.hw.propmap import PropertyMap
from unistack_aot.onnx_in import Imported, import_model
from unistack_aot.onnx_in.dims import Declared
from unistack_aot.onnx_in.read import Model
from unistack_aot.packing import Clock, GoldenSet
from unistack_aot.pipeline import Report, declared
from unistack_aot.runtime.devices import measured_on
from unistack_aot.runtime.session import Session
from unistack_aot.stages import Hooks, Stage
from unistack_aot.targets.registry import split_name
from unistack_aot.tune.bench import Bench, seconds_by_launch
from unistack_aot.tune.database import Database
from unistack_aot.tune.search import FEW, Search

ZIP = b"PK\3\4"
"""How every package begins."""


def compile_model(
    model: Model,
    output: str | Path,
    targets: Sequence[str] = ("cpu",),
    dims: Mapping[str, DimRequest] | None = None,
    precision: str = "f32",
    golden: bool = True,
    override: Path | None = None,
    hooks: Hooks | None = None,
    convolution: str = "fast",
    maps: Sequence[PropertyMap] = (),
    tuning: Tuning | None = None,
    verify: int | None = None,
) -> Report:
    """Compile a model into one package file, which can test itself unless `golden` is off.

    `model` is a path, the bytes of a model, or a ModelProto; `output` the file to write. `targets` as
    in "cpu", "cpu:x86-64-v3", "cuda:sm_90"; `dims` fixes or bounds symbolic dimensions: {"batch": 8},
    {"batch": (1, 8)} or (lowest, typical, highest). `precision` says what contractions may be computed
    in; with `convolution` "direct" every convolution is the sum of its definition. `override` is the
    folder of texts that `hooks.watch` puts in place of stages; `maps` describe the machines to build
    for; `tuning` says how long to measure kernels here, and where results are kept. `verify` is the level
    at which the compiler tests itself (1 to 3; no level changes a package).

    The report says what was built, remarked on and written. Raises BadInput (arguments), BadModel (a
    broken model), Unsupported (what has no kernel, all of it at once), MissingTool (no compiler) or
    another UnistackError; nothing is written then.
    """
    writable(Path(output))
    model = Path(model) if isinstance(model, str) else model
    watching = hooks or Hooks()
    if golden:
        made = partial(_recorded, model, Rounding(precision), {})
        watching = replace(watching, golden=made)
    if tuning is not None:
        _measurable(tuning, targets, precision)
        rounding = Rounding(precision, "direct" if convolution == "direct" else "fast")
        watching = replace(watching, tuner=tuner(tuning, model, rounding))
    return pipeline.compile_model(
        model, output, targets, dims, precision, watching, override, convolution, maps, verify
    )


@dataclass(frozen=True, slots=True)
class Tuning:
    """Seconds to measure in for each variant that runs here (0: take what is known); where results are kept.

    `device` says where a variant is measured, or raises; `clock` times one run there.
    """

    seconds: float
    folder: Path | None = None
    say: Callable[[str], None] = field(default=lambda _: None)
    device: Callable[[str], str] = measured_on
    clock: Callable[[Session, Feeds], Mapping[int, float]] = seconds_by_launch


def tuner(tuning: Tuning, model: Model, rounding: Rounding, few: int = FEW) -> Search:
    """The search that a compilation of `model` may use: `few` ways of a kernel are tried at most."""
    settings = environment()
    folder = tuning.folder or settings.cache / "tuning"

    def feeds(session: Session, graph: Graph | None) -> Feeds:
        dims = {dim.name: dim.typical for dim in session.package.manifest.dims}
        return drawn(session.inputs, dims, graph or import_model(model).graph, seed=0)

    def differs(graph: Graph | None, given: Feeds, want: Feeds, got: Feeds) -> str:
        return differing_output(graph or import_model(model).graph, rounding, given, want, got)

    bench = Bench(tuning.device, feeds, differs, settings.threads, tuning.clock)
    return Search(tuning.seconds, Database(folder), bench, few, tuning.say)


def _measurable(tuning: Tuning, targets: Sequence[str], precision: str) -> None:
    """The error where no variant of any target can be measured here; each target of which none can is named."""
    faults: dict[str, UnistackError] = {}
    for written in targets if tuning.seconds > 0 else ():
        target, level = split_name(written)
        reasons: list[UnistackError] = []
        levels = target.levels(level, precision)
        for each in levels:
            try:
                tuning.device(f"{target.name}:{each}")
            except UnistackError as reason:
                reasons.append(reason)
        if len(reasons) == len(levels):
            faults[written] = reasons[0]
    if faults and len(faults) == len(targets):
        raise next(iter(faults.values()))
    for written, fault in faults.items():
        tuning.say(f"{written} is not tuned: {fault.what}")


def compile_from(
    stage: Stage,
    model: Model | None,
    output: str | Path,
    options: Options,
    hooks: Hooks,
    golden: bool = True,
) -> Report:
    """Compile from a stage on (pipeline.go_on); runs are recorded only if the `model` is given."""
    writable(Path(output))
    if golden and model is not None:
        made = partial(_recorded, model, Rounding(options.precision), declared(options))
        hooks = replace(hooks, golden=made)
    return pipeline.go_on(stage, output, options, hooks, Clock())


def _recorded(
    model: Model, rounding: Rounding, dims: Declared, imported: Imported | None
) -> GoldenSet:
    return golden_set(model, imported or import_model(model, dims), rounding)


def writable(output: Path) -> None:
    """BadInput if a package cannot be put there, or in place of what; said before anything is compiled."""
    if output.is_dir():
        raise BadInput(f"{output} is a folder", hint="give the name of the package file to write")
    if not output.parent.is_dir():
        raise BadInput(
            f"the folder {output.parent} does not exist",
            at=output,
            hint="create it first; nothing was compiled",
        )
    if not os.access(output.parent, os.W_OK):
        raise BadInput(
            f"nothing may be written in the folder {output.parent}",
            at=output,
            hint="choose another place; nothing was compiled",
        )
    if output.exists() and not replaceable(output):
        raise BadInput(
            f"{output} is there, and is no package",
            hint="choose another name, or remove it first; nothing was compiled",
        )


def replaceable(path: Path) -> bool:
    """Whether what is there may make way for a package: an older package, or an empty file."""
    if not path.is_file():  # a device, a pipe
        return False
    with open(path, "rb") as file:
        start = file.read(len(ZIP))
    return start in (b"", ZIP)
