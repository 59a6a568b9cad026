"""What a machine family needs: tile instructions, legalisation, spelling, tool chain.

Not here: its numbers (hw/).
"""
