"""Models of real architectures to compile, run and measure: recipes, fetched files, and one catalogue.

Not here: anything the compiler or the runtime needs. Nothing in `unistack_aot` imports this package.
"""
