"""AICF, the semantic graph: what a model means. Not here: loops, tiles, memory."""
