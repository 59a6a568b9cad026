"""Ground floor: dtypes, symbolic dimensions, errors, options, measured values, dump text.

Not here: anything that knows of a model, an IR, a target or a machine.
"""
