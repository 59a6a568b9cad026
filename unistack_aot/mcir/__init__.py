"""MCIR, the memory program: where data lives and how it moves. Not here: what an ONNX operator means."""
