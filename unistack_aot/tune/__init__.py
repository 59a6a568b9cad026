"""Measuring the ways of a kernel where it runs, and remembering what was found.

Not here: which ways there are (schedule/candidates.py), how a package is made (pipeline.py).
"""
