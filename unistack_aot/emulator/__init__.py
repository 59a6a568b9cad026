"""CUDA on the CPU: kernel text built by a host compiler, under a driver library of our own.

Not here: generated kernels (codegen), the device helpers that they include (targets/cuda/include).
"""
