"""The face of the runtime: load a package, run it, test it, time it.

Not here: how a device runs it (cpu.py, cuda.py).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias
from weakref import WeakSet

import numpy as np

from unistack_aot.artifact.manifest import Certificate, Golden, Kernel, Tensor, Variant
from unistack_aot.artifact.reader import Package, open_package
from unistack_aot.artifact.tensors import StoredTensor
from unistack_aot.base.errors import BadInput, BadPackage, CheckFailed
from unistack_aot.base.symbolic import parse, symbols
from unistack_aot.runtime.binding import Signature
from unistack_aot.runtime.devices import Chosen, choose, device_array
from unistack_aot.runtime.devices import register_device_hook as register_device_hook
from unistack_aot.runtime.layout import certify, lay_out, value
from unistack_aot.runtime.processor import default_threads

Array: TypeAlias = "np.ndarray[Any, Any]"
_PLANS = 64  # shape bindings kept ready; the least recently used one goes


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """Seconds spent in one launch, summed over the times it ran."""

    number: int
    kernel: Kernel
    runs: int
    seconds: float


@dataclass(frozen=True, slots=True)
class OutputVerdict:
    """How one golden output compares; ``worst`` is the largest error divided by its tolerance."""

    golden: str
    output: str
    worst: float
    passed: bool


class Session:
    """A loaded package on one device; threads may share it (runs take turns)."""

    def __init__(self, package: Package, chosen: Chosen, poison: bool = False) -> None:
        self.package = package
        self.device = chosen.device
        self.device_reason = chosen.reason
        self.variant: Variant = chosen.program.variant
        self._program = chosen.program
        self._program.poison = poison
        self._signature = Signature(package.manifest, device_array, self.variant.demands)
        self._names = tuple(item.name for item in self._signature.inputs)
        self._plans: OrderedDict[tuple[tuple[int, ...], ...], Any] = OrderedDict()
        self._lock = Lock()
        _sessions.add(self)
        self._cuts = _measured_axes(package.manifest.outputs, self.variant)
        self._order = tuple(tensor.name for tensor in package.manifest.outputs)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Name, dtype and shape of every input."""
        return self.package.manifest.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Name, dtype and shape of every output."""
        return self.package.manifest.outputs

    def run(self, feeds: Mapping[str, object]) -> dict[str, Array]:
        """Run the model: fresh numpy arrays by output name, in the signature's order.

        ``feeds`` holds one array per input of exactly the dtype and the rank in ``inputs``; sizes of
        symbolic dimensions are taken from the shapes, and must agree and lie within their bounds.
        Arrays are numpy's, or have ``__dlpack__`` (CPU memory) or ``__cuda_array_interface__``; any
        strides do on the CPU. Nothing is converted: `BadInput` says which input is missing, unknown,
        of another dtype or shape. Other `UnistackError`: a run that the model itself refuses.
        """
        arrays = self._signature.collect(feeds)
        key = tuple(array.shape for array in arrays)
        with self._lock:
            plan = self._plan(key)
            outputs, measured = plan.run(dict(zip(self._names, arrays, strict=True)))
        return self._finished(outputs, measured)

    def plan(self, dims: Mapping[str, int] | None = None) -> Certificate:
        """Arena bytes and their lower bound for a binding of the dimensions (default: typical)."""
        typical = {dim.name: dim.typical for dim in self.package.manifest.dims}
        bound = typical | dict(dims or {})
        if unknown := sorted(bound.keys() - typical.keys()):
            raise BadInput(
                f"there is no dimension {unknown[0]!r}",
                hint=f"the dimensions are {', '.join(typical) or 'all fixed'}",
            )
        return certify(self.variant, bound)

    def profile(
        self, feeds: Mapping[str, object], clock: Callable[[], float] | None = None
    ) -> tuple[LaunchTime, ...]:
        """Seconds of every launch of one run; each is waited for, so the sum is longer.

        A GPU takes them between two events around the launch, a CPU by the wall clock, unless a `clock` of the host is
        given. With one thread on a busy machine, `time.thread_time` leaves out the waits for a processor.
        """
        arrays = self._signature.collect(feeds)
        with self._lock:
            plan = self._plan(tuple(array.shape for array in arrays))
            inputs = dict(zip(self._names, arrays, strict=True))
            plan.run(inputs)  # so that the timed run finds warm caches
            plan.machine.timings, plan.machine.clock = [], clock
            try:
                plan.run(inputs)
                timings = plan.machine.timings
            finally:
                plan.machine.timings = None
        return self._summed(timings)

    def selftest(self) -> tuple[OutputVerdict, ...]:
        """Run the recorded inputs inside the package and compare; one verdict per output."""
        verdicts: list[OutputVerdict] = []
        for golden in self.package.manifest.golden:
            stored = self.package.tensors(golden.member)
            feeds = {
                tensor.name: stored[f"{golden.name}/input/{tensor.name}"].array()
                for tensor in self.inputs
            }
            outputs = self.run(feeds)
            verdicts += _verdicts(golden, outputs, stored)
        return tuple(verdicts)

    def after_fork(self) -> None:
        """In a forked child: the thread that held the lock, and the run it was in, are not there."""
        self._lock = Lock()
        self._plans.clear()

    def _plan(self, shapes: tuple[tuple[int, ...], ...]) -> Any:
        plan = self._plans.get(shapes)
        if plan is None:
            dims = self._signature.bind(shapes)
            plan = self._plans[shapes] = self._program.plan(lay_out(self.variant, dims))
            if len(self._plans) > _PLANS:
                self._plans.popitem(last=False)
        elif len(self._plans) > 1:
            self._plans.move_to_end(shapes)
        return plan

    def _finished(self, outputs: dict[str, Array], measured: dict[str, int]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for name in self._order:
            array = outputs[name]
            cut = self._cuts.get(name)
            if cut is not None:
                index = tuple(
                    slice(None) if size is None else slice(value(size, measured)) for size in cut
                )
                array = np.ascontiguousarray(array[index])
            found[name] = array
        return found

    def _summed(self, timings: list[tuple[int, float]]) -> tuple[LaunchTime, ...]:
        runs: dict[int, list[float]] = {}
        for number, seconds in timings:
            runs.setdefault(number, []).append(seconds)
        launches = self.variant.launches
        return tuple(
            LaunchTime(
                number,
                self.variant.kernels[launches[number].kernel],
                len(seconds),
                sum(seconds),
            )
            for number, seconds in sorted(runs.items())
        )


_sessions: WeakSet[Session] = WeakSet()


def _after_fork() -> None:
    for session in list(_sessions):
        session.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def load(
    path: str | os.PathLike[str],
    device: str = "auto",
    threads: int | None = None,
    verify: bool = False,
    poison: bool = False,
    selftest: bool = False,
) -> Session:
    """Load a package onto "cpu", "cuda:N", "emulator" or "auto" (a GPU if present, else the CPU).

    ``threads`` bounds the CPU threads (default: UA_THREADS, else one per physical core). The
    manifest, the code and the weights in use are always checked by SHA-256; ``verify`` checks every
    member. ``poison`` fills the CPU's arena and outputs with 0xFF (NaN) before each run, so that a
    kernel that reads what nobody wrote shows. ``selftest`` replays the recorded runs (`CheckFailed`
    names the first output that is wrong, `BadPackage` says that there are none).

    Raises `BadInput` (no such device), `BadPackage` (damaged, or no variant for this machine),
    `MissingTool` (a GPU without pycuda).
    """
    if threads is not None and threads < 1:
        raise BadInput(f"threads={threads} is not positive", hint="use 1 or more, or None")
    package = open_package(Path(path), verify)
    session = Session(package, choose(package, device, threads or default_threads()), poison)
    if selftest:
        _insist(session)
    return session


def _insist(session: Session) -> None:
    """CheckFailed if a recorded run does not come out as recorded."""
    package = session.package
    verdicts = session.selftest()
    if not verdicts:
        raise BadPackage(
            "the package carries no recorded run",
            at=package.path,
            hint="compile it with recorded runs, or load it without selftest",
        )
    for verdict in verdicts:
        if not verdict.passed:
            raise CheckFailed(
                f"output {verdict.output!r} of {verdict.golden} is {verdict.worst:.3g} times as far "
                f"off as is allowed on {session.device}",
                at=package.path,
                hint="compile the model again for this machine, and report it if that does not help",
            )


def _measured_axes(
    outputs: tuple[Tensor, ...], variant: Variant
) -> dict[str, tuple[str | None, ...]]:
    """For outputs with measured dimensions: per axis the expression to cut to, or None."""
    names = {measured.dim for measured in variant.measured}
    found: dict[str, tuple[str | None, ...]] = {}
    for tensor in outputs:
        cuts = tuple(size if symbols(parse(size)) & names else None for size in tensor.shape)
        if any(size is not None for size in cuts):
            found[tensor.name] = cuts
    return found


def _verdicts(
    golden: Golden, outputs: dict[str, Array], stored: Mapping[str, StoredTensor]
) -> list[OutputVerdict]:
    found: list[OutputVerdict] = []
    for tolerance in golden.tolerances:
        got = outputs[tolerance.output]
        want = stored[f"{golden.name}/output/{tolerance.output}"].array()
        if got.shape != want.shape or got.dtype != want.dtype:
            found.append(OutputVerdict(golden.name, tolerance.output, float("inf"), False))
            continue
        worst = _worst(got, want, tolerance.relative, tolerance.absolute)
        found.append(OutputVerdict(golden.name, tolerance.output, worst, worst <= 1.0))
    return found


def _worst(got: Array, want: Array, relative: float, absolute: float) -> float:
    """The largest error over its tolerance; equal values (NaN, infinities too) count as 0."""
    mine, gold = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    equal = (mine == gold) | (np.isnan(mine) & np.isnan(gold))
    if equal.all():
        return 0.0
    mine, gold = mine[~equal], gold[~equal]
    with np.errstate(all="ignore"):
        ratio = np.abs(mine - gold) / (absolute + relative * np.abs(gold))
    return float(np.nan_to_num(ratio, nan=np.inf).max())
