"""CUDA: MCIR printed as CUDA C++, built by nvcc for a GPU or by a host compiler for the emulator."""
