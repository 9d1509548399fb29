"""The deterministic simulator: production cores and storage under seeded faults, checked while they run.

Everything here is a function of one seed: no clock, no thread, no iteration over sets, no ``id()``.
"""
