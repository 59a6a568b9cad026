"""What is known about machines: measured quantities, property maps, and the questions a scheduler
asks.

Not here: how a number is obtained (probe_suite), what a target can print (targets), which schedule
wins (schedule).
"""
