"""Leaf functions on buffers: a whole read in, a whole response out; no objects per entry where a caller can do without.

Pure Python, shaped so that a compiled twin can replace any of them.
"""
