"""The command line: argument parsing and presentation, one file per verb.

Not here: anything that a program could not do through the public functions.
"""
