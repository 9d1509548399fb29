"""Producers and consumers of topics."""
