"""The Probing Lab: small programs that ask a machine one question each, and the property map their
answers make.

Not here: what the numbers are used for (unistack_aot/hw), kernels of a model
(unistack_aot/codegen).
"""
