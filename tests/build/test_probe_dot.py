"""The probe of narrow dot products: every engine compiles and holds its instruction, whatever this machine has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from probe_suite import cpu_facts, toolchain
from probe_suite.probe import NotHere, Setting
from probe_suite.probes import cpu_dot
from probe_suite.probes.cpu_dot import ENGINES, Engine

LEVEL = "x86-64-v4"
pytestmark = pytest.mark.skipif(
    not cpu_facts.isa_levels()[-1].startswith("x86-64"), reason="g++ here builds for another family"
)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_engine_compiles_to_its_instruction(engine: Engine, tmp_path: Path) -> None:
    library = tmp_path / "probe.so"
    toolchain.compile_cpu(cpu_dot.SOURCE, library, LEVEL, [engine.macro], engine.flags)
    seen = toolchain.see_cpu(library, engine.function, engine.code, max(engine.chains))
    assert seen.count >= max(engine.chains)


@pytest.mark.parametrize("engine", ENGINES[-2:], ids=lambda engine: engine.name)
def test_tiles_are_configured_loaded_and_released(engine: Engine, tmp_path: Path) -> None:
    library = tmp_path / "probe.so"
    toolchain.compile_cpu(cpu_dot.SOURCE, library, LEVEL, [engine.macro], engine.flags)
    assert engine.name.startswith("amx.")
    text = toolchain.run_tool(["objdump", "-d", "--no-show-raw-insn", str(library)])
    for instruction, least in (
        ("ldtilecfg", 1),
        ("tilezero", 4),
        ("tileloadd", 4),
        ("tilerelease", 1),
    ):
        assert len(re.findall(rf"\b{instruction}\b", text)) >= least, instruction


@pytest.mark.parametrize("lacking", ["amx_int8", "avx512_vnni"])
def test_a_machine_without_an_engine_leaves_it_out(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have = {"avx512_vnni", "amx_int8"} - {lacking}
    monkeypatch.setattr(cpu_facts, "flags", lambda: frozenset(have))
    chosen = cpu_dot.engines_here(Setting("cpu", LEVEL, tmp_path, {}, quick=True))
    assert {each.needs for each in chosen} == have


def test_the_record_says_which_engines_were_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "avx512_vnni" not in cpu_facts.flags():
        pytest.skip("this processor has no engine to measure")
    monkeypatch.setattr(cpu_facts, "flags", lambda: frozenset({"avx512_vnni"}))
    found = cpu_dot.run(Setting("cpu", LEVEL, tmp_path, {}, quick=True))
    assert {each.name for each in found.findings} == {"dot.i8", "dot.i8.one"}
    assert found.facts["amx.bf16 not measured"] == "this processor lacks amx_bf16"
    assert "dot.i8 not measured" not in found.facts


def test_a_machine_without_any_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_facts, "flags", lambda: frozenset({"avx2"}))
    with pytest.raises(NotHere, match="has none of avx512_vnni, avx512_bf16, amx_int8, amx_bf16"):
        cpu_dot.engines_here(Setting("cpu", LEVEL, tmp_path, {}, quick=True))
