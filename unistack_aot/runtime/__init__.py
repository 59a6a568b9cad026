"""Running a package: arena, devices, sessions. Not here: compiling.

Needs numpy and protobuf only, and pycuda when a GPU is asked for.
"""
