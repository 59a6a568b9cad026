"""Schedules: operators on MCIR, and who chooses among them. Not here: what an op means, how a target spells a loop."""
