"""`run --counters`: what a profiler would count of each kernel, from a checked image on the emulator."""

from __future__ import annotations

from dataclasses import asdict

from unistack_aot.base.errors import BadInput
from unistack_aot.cli.face import Face, size
from unistack_aot.emulator.counters import GlobalTraffic, KernelCounters, by_kernel
from unistack_aot.emulator.load import Emulator, activate
from unistack_aot.runtime.session import Session

HEAD: tuple[tuple[object, ...], ...] = (
    ("", "", "", "sectors", "", "", "sectors", "", "shared", "bank"),
    (
        *("kernel", "runs", "read", "/request", "used", "written", "/request", "used"),
        *("wavefronts", "conflicts", "mma", "computes"),
    ),
)


def start_counting(device: str) -> Emulator:
    """The emulator, which counts from now on; BadInput for another device."""
    if device != "emulator":
        raise BadInput(
            f"--counters on device {device!r}",
            hint="traffic is counted on the emulator: --device emulator",
        )
    emulator = activate()
    emulator.set_counting(True)
    return emulator


def present_counters(emulator: Emulator, session: Session, face: Face) -> None:
    """A table by kernel; the JSON document has every launch too."""
    launches = emulator.counters()
    if not launches:
        target = session.variant.target
        raise BadInput(
            f"the image of {target} does not count",
            at=session.package.path,
            hint=f"compile with --target {target}-checked",
        )
    computes = {k.symbol: (*k.origins, "-")[0] for k in session.variant.kernels}
    sums = by_kernel(launches)
    rows = [(*numbers(each), computes[each.kernel]) for each in sums]
    face.table([*HEAD, *rows], right="lrrrrrrrrrrl")
    face.fact(
        counters=[asdict(each) for each in sums], launches=[asdict(each) for each in launches]
    )


def numbers(each: KernelCounters) -> tuple[object, ...]:
    """The columns of `HEAD`, but the last, for a kernel."""
    return (
        each.kernel,
        each.launches,
        *_far(each.read),
        *_far(each.written),
        each.shared.wavefronts,
        each.shared.conflicts,
        each.mma,
    )


def _far(traffic: GlobalTraffic) -> tuple[str, str, str]:
    used = f"{100 * traffic.efficiency:.0f} %" if traffic.sectors else "-"
    return size(traffic.bytes), f"{traffic.sectors_per_request:.2f}", used
