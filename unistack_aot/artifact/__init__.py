"""The package on disk: manifest, ZIP writer and reader, tensor files, integrity.

Not here: running it (runtime/).
"""
