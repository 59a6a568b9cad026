"""Machinery that both IRs share: interned values, scalar expressions, patterns. Not here: any op or loop."""
