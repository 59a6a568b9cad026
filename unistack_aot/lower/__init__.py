"""AICF to naive MCIR: one kernel per node, no decisions. Not here: fusion, tiles, layouts (schedule/)."""
