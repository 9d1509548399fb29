"""The deterministic simulator: production code under seeded faults, checked while it runs.

Everything here is a function of one seed: no clock, no thread, no iteration over sets, no ``id()``.
"""
