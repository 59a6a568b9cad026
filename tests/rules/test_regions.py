"""Rules reach the regions of control ops."""

from __future__ import annotations

import unistack_aot.ops  # noqa: F401  registers the vocabulary
from unistack_aot.aicf.parse import parse_graph
from unistack_aot.aicf.text import print_graph
from unistack_aot.rules import apply_rules

TEXT = """
graph choice(%c: bool[], %x: f32[2]) {
  %0 = if(%c, %x, %x) then=graph a(%x: f32[2]) {
      %0 = neg(%x)
      %1 = neg(%0)
      return y=%1
    } otherwise=graph b(%x: f32[2]) {
      %0 = mul(%x, constant 1.0 : f32[])
      %1 = exp(%0)
      return y=%1
    }
  return y=%0
}
"""


def test_regions_are_rewritten() -> None:
    graph, report = apply_rules(parse_graph(TEXT))
    assert report.fired == {"merge-affine": 1, "identity-map": 1}
    printed = print_graph(graph)
    assert "neg" not in printed and "mul" not in printed and "exp" in printed
