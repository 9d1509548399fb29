"""Whole programs on virtual time: an event loop, processes on hosts, a network and workers, all from one seed.

Production shells run here unchanged, many processes in one: what they get from outside is given by this package.
"""
