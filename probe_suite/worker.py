"""Runs one probe in a process of its own and leaves its record as JSON: a probe that hangs or
crashes harms no other.

Called by run.py as `python -m probe_suite.worker REQUEST.json`.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from pathlib import Path

from probe_suite import record
from probe_suite.probe import NotHere, Setting
from probe_suite.probes import PROBES
from probe_suite.record import Record
from unistack_aot.base.errors import UnistackError

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


def request_text(probe: str, setting: Setting, answer: Path) -> str:
    """Return the request file's text for one probe."""
    fields = {
        "probe": probe,
        "device": setting.device,
        "arch": setting.arch,
        "scratch": str(setting.scratch),
        "known": dict(setting.known),
        "quick": setting.quick,
        "answer": str(answer),
    }
    return json.dumps(fields)


def main(argument: str) -> int:
    """Run the probe that the request file names; the record says how it went, so the status is
    always 0.
    """
    # A run that is killed takes its probe with it: this process leads a session of its own.
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    fields = json.loads(Path(argument).read_text(encoding="utf-8"))
    (probe,) = [each for each in PROBES if each.name == fields["probe"]]
    setting = Setting(
        fields["device"], fields["arch"], Path(fields["scratch"]), fields["known"], fields["quick"]
    )
    started = time.monotonic()

    def outcome(state: record.State, why: str) -> Record:
        return Record(probe.name, probe.question, state, why, time.monotonic() - started)

    try:
        answer = probe.run(setting)
        unknown = (
            {each.name for each in answer.findings} - set(probe.yields) - _levelled(probe.yields)
        )
        if unknown:
            raise AssertionError(f"{probe.name} found {sorted(unknown)} that it does not declare")
        found = Record(
            probe.name, probe.question, "done", "", time.monotonic() - started,
            answer.findings, answer.series, answer.seen, dict(answer.facts),
        )  # fmt: skip
    except NotHere as reason:
        found = outcome("skipped", str(reason))
    except UnistackError as error:
        found = outcome("failed", str(error))
    record.save(found, Path(fields["answer"]))
    return 0


def _levelled(yields: tuple[str, ...]) -> set[str]:
    """Names a probe may add per instruction set level: "fma.f32" also as "fma.x86-64-v2.f32"."""
    levels = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    return {name.replace(".", f".{level}.", 1) for name in yields for level in levels}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
