"""Rules about the code itself: imports, sizes, names, types. Not here: what the code does."""
