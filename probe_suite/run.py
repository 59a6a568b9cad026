"""Ask a machine every question: each probe in its own process with a time limit, then the map and
the report.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from probe_suite import cpu_facts, mapping, record, report
from probe_suite.gpu import counters
from probe_suite.gpu import device as gpu_device
from probe_suite.probe import Probe, Setting
from probe_suite.probes import PROBES
from probe_suite.record import Record
from probe_suite.worker import request_text
from unistack_aot.base.errors import BadInput
from unistack_aot.hw import propmap
from unistack_aot.hw.consistency import contradictions
from unistack_aot.hw.propmap import PropertyMap

ROOT = Path(__file__).parent.parent
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """What a run of the lab left behind: records, the map made of them, files, and what contradicts
    itself.
    """

    records: tuple[Record, ...]
    map: PropertyMap | None
    map_path: Path | None
    report_path: Path
    contradictions: tuple[str, ...]


def main_probe(
    device: str = "cpu",
    only: Sequence[str] = (),
    output: Path = Path("map.json"),
    limit_s: float | None = None,
    quick: bool = False,
    say: Say = print,
) -> ProbeRun:
    """Probe `device` ("cpu", "cuda:0", "emulator:sm_90") and write its map to `output`.

    Records, pictures and report.html go into the folder of the map's name without its ending.
    `only` names probes (all of the device's kind by default); `limit_s` replaces every probe's own
    time limit. Records already in the folder are of the same machine: each figure keeps its better
    run, and a probe that is not asked again keeps its record. BadInput for an unknown device or
    probe.
    """
    chosen = choose(device, only)
    if output.suffix != ".json":
        raise BadInput(f"the map '{output}' does not end in .json", hint="write -o map.json")
    arch = cpu_facts.isa_levels()[-1] if device == "cpu" else gpu_device.arch_of(device)
    folder = output.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="probe-") as scratch:
        known = {each.name: each.value for held in kept(device, folder) for each in held.findings}
        for index, probe in enumerate(chosen):
            limit = probe.limit_s if limit_s is None else limit_s
            say(f"[{index + 1}/{len(chosen)}] {probe.name}: {probe.question}")
            setting = Setting(device, arch, Path(scratch), known, quick)
            found = profiled(run_one(probe, setting, limit), setting, limit)
            say(f"      {_line(found)}")
            place = folder / f"{probe.name}.json"
            found = record.better(record.load(place), found) if place.exists() else found
            record.save(found, place)
            known |= {each.name: each.value for each in found.findings}
    return _written(kept(device, folder), device, arch, output, say)


def kept(device: str, folder: Path) -> tuple[Record, ...]:
    """The records of the device's kind that lie in a folder, in the lab's order."""
    files = [folder / f"{probe.name}.json" for probe in choose(device, ())]
    return tuple(record.load(file) for file in files if file.exists())


def _written(
    records: tuple[Record, ...], device: str, arch: str, output: Path, say: Say
) -> ProbeRun:
    """The map and the report of what was found."""
    folder = output.with_suffix("")
    if device.startswith("emulator"):
        # The emulator has function and traffic but no time: there is nothing to put into a map.
        page = report.write(records, f"emulator of {arch}", None, (), folder)
        say(f"wrote {page}; no property map, because an emulator has no speed")
        return ProbeRun(records, None, None, page, ())
    made, because = mapping.to_map(records, device, arch)
    propmap.save(made, output)
    against = contradictions(made)
    for line in against:
        say(f"contradiction: {line}")
    page = report.write(records, made.device, made, against, folder)
    say(f"lent where nothing was measured: {because}")
    say(f"wrote {output} and {page}")
    return ProbeRun(records, made, output, page, against)


def choose(device: str, only: Sequence[str]) -> tuple[Probe, ...]:
    """Return the probes to run, in the lab's order; BadInput names what does not exist."""
    kind = "cpu" if device == "cpu" else "gpu"
    if kind == "gpu" and device.split(":")[0] not in ("cuda", "emulator"):
        raise BadInput(f"no device is called '{device}'", hint="use cpu, cuda:0 or emulator:sm_90")
    fitting = tuple(probe for probe in PROBES if probe.kind == kind)
    names = {probe.name for probe in fitting}
    if unknown := sorted(set(only) - names):
        raise BadInput(
            f"no {kind} probe is called {', '.join(unknown)}", hint=f"known: {', '.join(names)}"
        )
    return tuple(probe for probe in fitting if not only or probe.name in only)


def run_one(probe: Probe, setting: Setting, limit_s: float) -> Record:
    """Run one probe in a fresh process; one past its limit is ended, and so recorded."""
    request, answer = setting.scratch / f"{probe.name}.ask", setting.scratch / f"{probe.name}.json"
    request.write_text(request_text(probe.name, setting, answer), encoding="utf-8")
    command = [sys.executable, "-m", "probe_suite.worker", str(request)]
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        words, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return Record(
            probe.name, probe.question, "timed out", f"no answer within {limit_s:g} s", limit_s
        )
    except BaseException:
        _end(process)
        raise
    if answer.exists():
        return replace(record.load(answer), seconds=time.monotonic() - started)
    last = words.decode(errors="replace").strip()[-1000:]
    why = f"the process ended with status {process.returncode}: {last}"
    return Record(probe.name, probe.question, "failed", why, time.monotonic() - started)


def profiled(found: Record, setting: Setting, limit_s: float) -> Record:
    """The record with the profiler's counters of a short second run, or the reason for their absence."""
    if found.state != "done" or not setting.device.startswith("cuda"):
        return found
    again = replace(setting, quick=True)
    answer = setting.scratch / f"{found.probe}.counted.json"
    request = setting.scratch / f"{found.probe}.counted.ask"
    request.write_text(request_text(found.probe, again, answer), encoding="utf-8")
    seen = counters.profile([sys.executable, "-m", "probe_suite.worker", str(request)], limit_s)
    facts = found.facts | ({"counters": seen.why} if seen.why else {})
    return replace(found, counters=seen.counters, facts=facts)


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _line(found: Record) -> str:
    if found.state != "done":
        return f"{found.state}: {found.why.splitlines()[0]}"
    shown = ", ".join(mapping.shown(each) for each in found.findings[:6])
    more = f" and {len(found.findings) - 6} more" if len(found.findings) > 6 else ""
    return f"{found.seconds:.1f} s  {shown}{more}"
