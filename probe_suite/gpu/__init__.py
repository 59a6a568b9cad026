"""What GPU probes share: kernel sources, building and proving them, launching and timing. Not here:
any question.
"""
