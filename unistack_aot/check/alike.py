"""Whether two packages of one model compute the same at some inputs, within what rounding explains.

Not here: a package against its model (checker.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Array
from unistack_aot.base.errors import UnistackError
from unistack_aot.check.conditioning import Conditioning
from unistack_aot.check.excuses import Excuses, compared
from unistack_aot.check.oracles import Feeds, bound, exact
from unistack_aot.check.tolerance import Rounding, bounds
from unistack_aot.check.verdict import OutputResult, shown


def differing_output(
    graph: Graph,
    rounding: Rounding,
    feeds: Feeds,
    want: Mapping[str, Array],
    got: Mapping[str, Array],
) -> str:
    """The first output that is further from the wanted one than is allowed, in words; "" if none is.

    What differs is judged again by a float64 evaluation, as a check does: both may round in ill-conditioned places.
    """
    fixed = bound(graph, feeds)
    limits = bounds(fixed, rounding)
    found = [compared("", name, got[name], want[name], limits[name]) for name, _ in fixed.outputs]
    wrong = [result for result in found if not result.passed]
    if not wrong:
        return ""
    try:
        truth = exact(fixed, feeds)
    except UnistackError:  # there is no other judge
        return _words(wrong[0])
    excuses = Excuses(Conditioning(rounding, fixed, feeds))
    for result in wrong:
        name = result.output
        again = excuses.verdict("", name, got[name], truth[name], limits[name])
        if not again.passed:
            return _words(again)
    return ""


def _words(result: OutputResult) -> str:
    return (
        f"output {result.output!r} is {shown(result.error)} ulp-scaled off, "
        f"{shown(result.allowed)} are allowed"
    )
