"""The lab itself: statistics, fits, records, the runner's limits, and CPU probes."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from probe_suite import cpu_facts, fit, mapping, record, report, run, samples, toolchain
from probe_suite.probe import Probe, Setting
from probe_suite.probes import PROBES, cpu_threads
from probe_suite.record import Finding, Record, Seen, Series
from unistack_aot.base.errors import BadInput
from unistack_aot.hw import propmap
from unistack_aot.hw.consistency import contradictions
from unistack_aot.hw.machine import Machine

ARCH = cpu_facts.isa_levels()[-1]
MAPS = Path(run.__file__).parent / "maps"
KIB, MIB = 1 << 10, 1 << 20


def probe(name: str) -> Probe:
    (found,) = [each for each in PROBES if each.name == name]
    return found


def setting(folder: Path, arch: str = ARCH) -> Setting:
    return Setting("cpu", arch, folder, {}, quick=True)


def test_samples_report_the_best_and_stop_when_three_agree() -> None:
    noisy = itertools.chain([5.0, 9.0, 4.0, 7.0, 4.01, 8.0, 4.02], itertools.repeat(99.0))
    found = samples.repeat(lambda: next(noisy))
    assert (found.best, found.count) == (4.0, 7)
    assert 0 <= found.spread < 0.3


def test_samples_stop_at_their_budget() -> None:
    clock = itertools.count(1)
    started = time.monotonic()
    samples.repeat(lambda: (time.sleep(0.002), 1.0 / next(clock))[1], budget_s=0.05)
    assert time.monotonic() - started < 2.0


def test_plateaus_of_a_staircase_with_noise() -> None:
    x = [float(1 << power) for power in range(12)]
    y = [1.3, 1.31, 1.29, 1.33, 2.4, 3.9, 3.8, 4.0, 9.0, 16.1, 15.8, 16.0]
    found = fit.plateaus(x, y)
    ends = [(step.first, step.last) for step in found]
    assert ends == [(1.0, 8.0), (32.0, 128.0), (512.0, 2048.0)]
    assert [step.level for step in found] == pytest.approx([1.305, 3.9, 16.0], rel=0.01)
    assert fit.knee(x, y) == 8.0
    assert fit.knee(x, [1.0] * 12) is None


def test_line_recovers_intercept_and_slope() -> None:
    assert fit.line([0.0, 1.0, 2.0], [3.0, 5.0, 7.0]) == pytest.approx((3.0, 2.0))
    with pytest.raises(ValueError, match="two distinct points"):
        fit.line([1.0, 1.0], [1.0, 2.0])


def test_geometric_sizes_are_multiples_of_a_line_and_rise() -> None:
    sizes = fit.geometric(4 * KIB, MIB, 2)
    assert sizes[0] == 4 * KIB
    assert sizes[-1] == MIB
    assert all(size % 64 == 0 for size in sizes)
    assert list(sizes) == sorted(set(sizes))


def example(**changes: object) -> Record:
    fields = {
        "probe": "cpu_clock",
        "question": "At what clock does one core run under load?",
        "state": "done",
        "findings": (Finding("clock", 3e9, "Hz", 0.01, 7, "a note"),),
        "series": (Series("warming", (0.0, 1.0), (2.9e9, 3e9), "run", "Hz"),),
        "seen": (Seen("chain", "xor", 64),),
        "facts": {"model": "A <CPU> of ours"},
    }
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


def test_record_survives_a_round_trip(tmp_path: Path) -> None:
    record.save(example(), tmp_path / "r.json")
    assert record.load(tmp_path / "r.json") == example()


def test_of_two_runs_each_figure_keeps_the_faster() -> None:
    slow = Finding("dram.latency", 2e-7, "s", 0.0, 5)
    before = example(findings=(Finding("clock", 3e9, "Hz", 0.0, 5), slow))
    fast, low = Finding("dram.latency", 1e-7, "s", 0.0, 5), Finding("clock", 2e9, "Hz", 0.0, 5)
    kept = record.better(before, example(findings=(low, fast)))
    assert {each.name: each.value for each in kept.findings} == {"clock": 3e9, "dram.latency": 1e-7}
    late = example(state="timed out", why="no answer", findings=())
    assert record.better(before, late) is before
    assert record.better(late, before) is before


def test_a_lucky_run_does_not_replace_a_steady_one() -> None:
    steady, lucky = Finding("barrier", 3e-7, "s", 0.02, 9), Finding("barrier", 4e-8, "s", 0.97, 9)
    for before, after in ((steady, lucky), (lucky, steady)):
        kept = record.better(example(findings=(before,)), example(findings=(after,)))
        assert kept.findings == (steady,)


def test_a_typical_figure_is_no_record_of_the_luckiest_moment() -> None:
    def run(*values: float) -> Record:
        middle, low, high = values
        return example(
            findings=(
                Finding("barrier", middle, "s", 0.02, 9, of="middle"),
                Finding("barrier.low", low, "s", 0.0, 9, of="low"),
                Finding("barrier.high", high, "s", 0.0, 9, of="high"),
            )
        )

    kept = record.better(run(3e-8, 2e-8, 9e-8), run(8e-8, 7e-8, 8.5e-8))
    assert [each.value for each in kept.findings] == [8e-8, 2e-8, 9e-8]
    found = samples.typical([3.0] * 3 + [8.0] * 10 + [30.0])
    assert (found.middle, found.low, found.count) == (8.0, 3.0, 14)
    assert 8.0 < found.high <= 30.0 and found.spread < 0.99


def test_bursts_on_one_core_do_not_count_unless_there_are_no_others() -> None:
    made = [cpu_threads.Burst(3e-8, True), *[cpu_threads.Burst(8e-8, False)] * 3]
    assert cpu_threads.apart(made) == [8e-8] * 3
    assert cpu_threads.apart(made[:1]) == [3e-8]
    usual, low, high = cpu_threads.found("barrier", made, "2 threads")
    assert (usual.name, usual.value) == ("barrier", 8e-8) and "(1 of 4 shared one)" in usual.note
    assert (low.name, high.name) == ("barrier.low", "barrier.high")
    assert low.value < usual.value <= high.value


def test_a_roof_is_the_larger_of_a_constant_and_a_proportion() -> None:
    x = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    found = fit.roof(x, [5.0, 5.1, 4.9, 8.1, 15.8, 32.3])
    assert found.flat == pytest.approx(5.0, rel=0.03)
    assert found.slope == pytest.approx(1.0, rel=0.03)
    assert found.residual < 0.03
    assert fit.roof(x, [2 * at for at in x]).residual == pytest.approx(0.0)


def test_stairs_take_the_smallest_level_that_holds_x() -> None:
    steps = [(32.0, 1.0), (1024.0, 4.0), (1e18, 150.0)]
    assert fit.stairs([16.0, 32.0, 33.0, 5000.0], steps) == (1.0, 1.0, 4.0, 150.0)


def test_probes_asked_one_by_one_make_one_map(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    found = [
        run.main_probe("cpu", [name], tmp_path / "m.json", quick=True, say=lambda _: None)
        for name in ("cpu_query", "cpu_clock")
    ][-1]
    assert [each.probe for each in found.records] == ["cpu_query", "cpu_clock"]
    assert found.map_path == tmp_path / "m.json" and found.map is not None
    assert found.map.need("units.count").mark == found.map.need("clock").mark == "probe"
    assert (tmp_path / "m" / "roofline.png").stat().st_size > 5000
    assert "Roofline" in found.report_path.read_text()


def test_map_takes_what_was_measured_and_says_what_it_lent(tmp_path: Path) -> None:
    made, _ = mapping.to_map((example(),), "cpu", "x86-64-v3")
    assert made.properties["clock"].mark == "probe"
    assert made.properties["clock"].source == "cpu_clock"
    lent = made.properties["dram.bandwidth"]
    assert lent.mark != "probe"
    assert lent.note.startswith("not measured here; from the built-in map cpu-x86-64-v3")
    propmap.save(made, tmp_path / "m.json")
    assert Machine(propmap.load(tmp_path / "m.json")).latency("far").unit == "s"


@pytest.mark.parametrize("path", sorted(MAPS.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_map_is_coherent_and_probed(path: Path) -> None:
    found = propmap.load(path)
    assert contradictions(found) == ()
    assert found.id == path.stem
    assert any(entry.mark == "probe" for entry in found.properties.values())


def test_report_shows_every_probe_and_escapes_text(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    late = Record("cpu_stride", "What?", "timed out", "no answer within 3 s")
    made, _ = mapping.to_map((example(), late), "cpu", "x86-64-v3")
    page = report.write((example(), late), made.device, made, ("a contradiction",), tmp_path)
    text = page.read_text()
    assert "A &lt;CPU&gt; of ours" in text
    assert "timed out: no answer within 3 s" in text
    assert "contradiction: a contradiction" in text
    assert (tmp_path / "cpu_clock.png").stat().st_size > 5000


def test_unknown_probe_and_device_are_refused() -> None:
    with pytest.raises(BadInput, match="no cpu probe is called gpu_banks"):
        run.choose("cpu", ["gpu_banks"])
    with pytest.raises(BadInput, match="no device is called 'tpu'"):
        run.choose("tpu", [])


def test_probe_past_its_limit_is_ended_and_the_next_one_runs(tmp_path: Path) -> None:
    started = time.monotonic()
    late = run.run_one(probe("cpu_latency"), setting(tmp_path), limit_s=0.5)
    assert (late.state, late.why) == ("timed out", "no answer within 0.5 s")
    assert time.monotonic() - started < 10
    assert run.run_one(probe("cpu_query"), setting(tmp_path), limit_s=60).state == "done"


def test_probe_that_cannot_be_built_fails_with_the_compilers_words(tmp_path: Path) -> None:
    found = run.run_one(probe("cpu_clock"), setting(tmp_path, "x86-64-v9"), limit_s=60)
    assert found.state == "failed"
    assert "x86-64-v9" in found.why


def test_probe_without_its_instruction_set_is_skipped(tmp_path: Path) -> None:
    found = run.run_one(probe("cpu_gather"), setting(tmp_path, "x86-64-v2"), limit_s=60)
    assert (found.state, found.why) == ("skipped", "x86-64-v2 has no gather instruction")


def test_missing_instruction_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "probe.cpp"
    source.write_text('extern "C" double measured(double x) { return x + 1.0; }\n')
    library = tmp_path / "probe.so"
    toolchain.build_cpu(source, library, ARCH)
    assert toolchain.see_cpu(library, "measured", r"add", 1).count >= 1
    with pytest.raises(toolchain.InstructionMissing, match="holds 0 of 1 'vfmadd'"):
        toolchain.see_cpu(library, "measured", "vfmadd", 1)


@pytest.mark.parametrize("name", ["cpu_clock", "cpu_fma"])
def test_cpu_probe_finds_plausible_numbers(name: str, tmp_path: Path) -> None:
    found = run.run_one(probe(name), setting(tmp_path), limit_s=120)
    assert found.state == "done", found.why
    values = {each.name: each.value for each in found.findings}
    assert set(values) >= set(probe(name).yields)
    if name == "cpu_clock":
        assert 5e8 < values["clock"] < 7e9
    else:
        assert values["fma.f64.one"] < values["fma.f32.one"]
        assert found.seen


@pytest.mark.slow
def test_whole_cpu_lab(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    found = run.main_probe("cpu", output=tmp_path / "map.json", quick=True, say=lambda _: None)
    assert {each.state for each in found.records} <= {"done", "skipped"}
    assert found.map is not None
    machine = Machine(found.map)
    assert machine.latency("far").value > machine.latency("near").value > 0
    assert machine.bandwidth("near").value > machine.bandwidth("far").value
