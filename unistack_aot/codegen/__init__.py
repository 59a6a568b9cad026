"""MCIR to a small C-family tree, and its printer. Not here: any target's spelling (targets/<name>/dialect.py)."""
