"""The host CPU as a target: C++ with vector extensions, built into one shared library per instruction set."""
