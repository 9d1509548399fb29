"""Streams (Q18, Q19): unbounded logs of ledgers with owners and cursors, as Pulsar's managed ledgers have them."""
