"""Running a package: arena, devices, sessions; needs numpy and protobuf only (pycuda for a GPU). Not here: compiling."""
