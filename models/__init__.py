"""Models of real architectures to compile and measure: recipes, fetched files, one catalogue.

Not here: anything that `unistack_aot` needs; it never imports this package.
"""
