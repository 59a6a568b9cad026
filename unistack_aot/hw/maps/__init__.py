"""Built-in property maps as JSON data: cited numbers only. Not here: recorded measurements
(probe_suite/maps).
"""
