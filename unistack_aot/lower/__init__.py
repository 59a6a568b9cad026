"""AICF to naive MCIR: one kernel per node, no decisions. Not here: fusion, tiles, layouts (schedule/)."""

from unistack_aot.lower.control import lower_if, lower_loop, lower_scan
from unistack_aot.lower.driver import lower_graph

__all__ = ["lower_graph", "lower_if", "lower_loop", "lower_scan"]
