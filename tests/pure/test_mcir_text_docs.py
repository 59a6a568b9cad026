"""The examples of docs/mcir.md are MCIR: they read, print the same text, and pass the verifier."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.program_parse import parse_program
from unistack_aot.mcir.text import print_kernel, program_text
from unistack_aot.mcir.verify import verify_kernel
from unistack_aot.mcir.verify_program import verify_program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mcir.md"
EXAMPLES = re.findall(r"```mcir\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    "text", EXAMPLES, ids=lambda text: " ".join(text.split("(")[0].split()[:2])
)
def test_examples_of_the_page(text: str) -> None:
    if text.startswith("program"):
        program = parse_program(text)
        verify_program(program)
        assert program_text(program) == text
    else:
        kernel = parse_kernel(text)
        verify_kernel(kernel)
        assert print_kernel(kernel, text.split("(")[0].removeprefix("kernel ")) == text


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 5
