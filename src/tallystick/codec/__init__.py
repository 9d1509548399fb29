"""Leaf functions on buffers: a whole read in, a whole response out; no objects per entry where a caller can do without.

Each is written in Python, which is the reference and enough; some have a twin in C (``implementation``).
"""
