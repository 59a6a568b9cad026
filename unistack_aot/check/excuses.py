"""One result beside a reference: within its tolerance, or excused by what rounding does at these inputs.

Not here: which references are asked (checker.py), measuring what rounding does (conditioning.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unistack_aot.aicf.op import Array
from unistack_aot.check.compare import difference, differing
from unistack_aot.check.conditioning import (
    DISTURBED_MARGIN,
    DISTURBED_RUNS,
    TIE_RUNS,
    Conditioning,
)
from unistack_aot.check.quantum import allowance, moved, nearest, quantum_of, steps
from unistack_aot.check.tolerance import Bound
from unistack_aot.check.verdict import OutputResult


def compared(case: str, name: str, got: Array, want: Array, limit: Bound) -> OutputResult:
    """An output beside onnxruntime's, by its tolerance alone."""
    found = difference(got, want)
    return OutputResult(
        case,
        name,
        got.dtype.name,
        found.error,
        limit.ulps,
        "onnxruntime",
        found.error <= limit.ulps,
        found.remark,
    )


@dataclass(frozen=True, slots=True)
class Excuses:
    """What rounding errors may do to the outputs of a bound graph at some inputs."""

    conditioning: Conditioning

    def verdict(self, case: str, name: str, got: Array, truth: Array, limit: Bound) -> OutputResult:
        """An output beside its float64 evaluation; excuses are looked for where it is out of tolerance."""
        result = replace(compared(case, name, got, truth, limit), judge="float64")
        return result if result.passed else self.judged(result, got, truth)

    def judged(self, result: OutputResult, got: Array, truth: Array) -> OutputResult:
        """The result with the tolerance that the model's conditioning calls for."""
        if got.shape != truth.shape:
            return result
        quantum = quantum_of(self.conditioning.graph, result.output)
        if quantum is not None:
            return self._quantised(result, got, truth, quantum)
        return (self._exact if got.dtype.kind in "iub" else self._real)(result, got, truth)

    def _quantised(
        self, result: OutputResult, got: Array, truth: Array, quantum: float
    ) -> OutputResult:
        """Elements near a tie may be off by as many quanta as rounding errors move them."""
        mine, exact_steps = steps(got, quantum), steps(truth, quantum)
        if mine is None or exact_steps is None:
            return replace(result, remark=f"not a multiple of its quantum {quantum:.3g}")
        found = moved(mine, exact_steps)
        runs = self.conditioning.runs(result.output, DISTURBED_RUNS, 1.0, truth)
        limit = allowance((moved(nearest(run, quantum), exact_steps) for run in runs), truth.size)
        far = "one quantum" if found.furthest == 1 else f"{found.furthest} quanta"
        most = "one quantum" if limit.furthest == 1 else f"{limit.furthest} quanta"
        remark = (
            f"{found.count} of {truth.size} elements off by {far} of {quantum:.3g}; "
            f"rounding moves {limit.count} by {most}"
        )
        return replace(
            result,
            error=float(found.count),
            allowed=float(limit.count),
            passed=found.count <= limit.count and found.furthest <= limit.furthest,
            remark=remark,
        )

    def _exact(self, result: OutputResult, got: Array, truth: Array) -> OutputResult:
        """Elements that rounding errors can flip are near-ties; all others must be right."""
        wrong = differing(got, truth)
        ties = np.zeros_like(wrong)
        for run in self.conditioning.runs(result.output, TIE_RUNS, DISTURBED_MARGIN, truth):
            ties |= differing(run, truth)
            if not np.any(wrong & ~ties):
                remark = f"near-ties: {int(np.count_nonzero(wrong))}"
                return replace(result, error=0.0, passed=True, remark=remark)
        return replace(result, error=float(np.count_nonzero(wrong & ~ties)))

    def _real(self, result: OutputResult, got: Array, truth: Array) -> OutputResult:
        moves = self.conditioning.moves(result.output, truth, got.dtype)
        limit = max(result.allowed, moves.ulps)
        error = difference(got, truth, moves.scale).error
        passed = error <= limit
        remark = "ill-conditioned here" if passed else result.remark
        return replace(result, error=error, allowed=limit, passed=passed, remark=remark)
