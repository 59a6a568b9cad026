"""Backend tests compiled, many in one package, and judged against the outputs they come with.

Not here: where the cases come from (node_cases.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

import unistack_aot as ua
from models.node_cases import Arrays, NodeCase, packed_cases
from unistack_aot.base.errors import UnistackError, Unsupported
from unistack_aot.onnx_in import import_model
from unistack_aot.runtime.session import Session

_PLACE = re.compile(r"^'[^']*' ")
State = Literal["right", "other", "refused", "wrong", "failed"]
ROUNDED = {"float16": 2e-3, "bfloat16": 1.6e-2}
"""Relative error that a type's own rounding may make, where a case asks for less."""
CANCELLED = 2e-6
"""Error of f32 that is allowed of the largest element: where terms cancel, references are off too."""
KNOWN = {
    f"test_resize_downsample_scales_{mode}_align_corners": (
        "the last sample lies on the last element, as in onnxruntime; the reference goes by the "
        "extent before it is rounded"
    )
    for mode in ("linear", "cubic")
}
"""Cases whose expected outputs we do not follow, and why."""


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What became of one case; `constants` had to be given at compile time."""

    case: NodeCase
    state: State
    reason: str = ""

    @property
    def why(self) -> str:
        """The reason without the places in the model that it names."""
        return _PLACE.sub("", self.reason)

    @property
    def sentence(self) -> str:
        """Name, state, reason."""
        fixed = f" with {', '.join(self.case.constants)} constant" if self.case.constants else ""
        return f"{self.case.name}: {self.state}{fixed}{': ' if self.reason else ''}{self.reason}"


def judged_cases(
    cases: Sequence[NodeCase], folder: Path, target: str = "cpu", size: int = 40
) -> Iterator[NodeVerdict]:
    """The verdict on each case, as they become known."""
    groups: dict[tuple[object, ...], list[NodeCase]] = defaultdict(list)
    for case in cases:
        usable = importable(case)
        if isinstance(usable, NodeVerdict):
            yield usable
        else:
            groups[_kind(usable)].append(usable)
    for group in groups.values():
        for first in range(0, len(group), size):
            yield from _compiled(group[first : first + size], folder, target)


def _kind(case: NodeCase) -> tuple[object, ...]:
    """What cases of one package must share; what cannot be packed stands alone."""
    versions = sorted((o.domain, o.version) for o in case.model.opset_import)
    return (*versions, "" if case.plain else case.name)


def importable(case: NodeCase) -> NodeCase | NodeVerdict:
    """The case, or the one with constant operands, whichever imports; else why it is refused."""
    refusal = ""
    tried = (case, None if case.without else case.fixed())
    for each in tried:
        if each is None:
            continue
        try:
            import_model(each.model)
        except UnistackError as error:
            refusal = refusal or _reason(error)
            state: State = "refused" if isinstance(error, Unsupported) else "failed"
            if state == "failed":
                return NodeVerdict(each, state, _reason(error))
        except Exception as error:  # any crash of the compiler is a fault
            return NodeVerdict(each, "failed", f"{type(error).__name__}: {error}")
        else:
            if each.without:
                return NodeVerdict(each, "failed", f"imported, though {each.without}")
            return each
    return NodeVerdict(case, "refused", refusal)


def _reason(error: UnistackError) -> str:
    return " ".join(str(error.what).split("\n")[-1].split())


def _compiled(cases: Sequence[NodeCase], folder: Path, target: str) -> Iterator[NodeVerdict]:
    """Cases in one package; if they do not compile or run together, halves of them."""
    try:
        reasons = _reasons(cases, folder, target)
    except Exception as error:  # any crash of the compiler is a fault
        if len(cases) == 1:
            yield _stopped(cases[0], error)
            return
        middle = len(cases) // 2
        yield from _compiled(cases[:middle], folder, target)
        yield from _compiled(cases[middle:], folder, target)
        return
    for case, reason in zip(cases, reasons, strict=True):
        if reason and case.name in KNOWN:
            yield NodeVerdict(case, "other", KNOWN[case.name])
        else:
            yield NodeVerdict(case, "wrong" if reason else "right", reason)


def _stopped(case: NodeCase, error: Exception) -> NodeVerdict:
    if isinstance(error, Unsupported):
        return NodeVerdict(case, "refused", _reason(error))
    reason = _reason(error) if isinstance(error, UnistackError) else str(error)
    return NodeVerdict(case, "failed", f"{type(error).__name__}: {reason}")


def _reasons(cases: Sequence[NodeCase], folder: Path, target: str) -> list[str]:
    """How the outputs of each case's runs differ from what it expects; empty where they agree."""
    if len(cases) == 1:
        (case,) = cases
        session = _session(case.model, folder, target)
        return [next(filter(None, (wrong(case, session.run(f), w) for f, w in case.runs)), "")]
    named = {f"c{number}": case for number, case in enumerate(cases)}
    model, feeds = packed_cases(named)
    got = _session(model, folder, target).run(feeds)
    return [
        wrong(case, {k: got[f"{prefix}_{k}"] for k in case.runs[0][1]}, case.runs[0][1])
        for prefix, case in named.items()
    ]


def _session(model: onnx.ModelProto, folder: Path, target: str) -> Session:
    """The compiled model, loaded; on a CPU its memory is poisoned before each run."""
    package = folder / "cases.pkg"
    ua.compile_model(model, package, targets=(target,), golden=False)
    device = target.partition(":")[0]
    return ua.load(package, device=device, poison=device == "cpu")


def wrong(case: NodeCase, got: Arrays, wants: Arrays) -> str:
    """How outputs differ from those that a case expects; empty if they agree."""
    for name, want in wants.items():
        found = got[name]
        if found.shape != want.shape or found.dtype != want.dtype:
            return f"{name} is {found.dtype}{list(found.shape)}, not {want.dtype}{list(want.shape)}"
        if want.dtype.kind in "iub":
            count = int(np.count_nonzero(found != want))
            if count:
                return f"{name}: {count} of {want.size} elements differ"
            continue
        rtol = max(case.rtol, ROUNDED.get(want.dtype.name, 0.0))
        mine, theirs = found.astype(np.float64), want.astype(np.float64)
        finite = np.abs(theirs[np.isfinite(theirs)])
        atol = max(case.atol, CANCELLED * float(finite.max(initial=0.0)))
        close = np.isclose(mine, theirs, rtol, atol, equal_nan=True)
        if not close.all():
            at = tuple(int(k) for k in np.argwhere(~close)[0])
            count = int(np.count_nonzero(~close))
            return f"{name}: {count} of {want.size} elements differ: {mine[at]}, not {theirs[at]}"
    return ""
