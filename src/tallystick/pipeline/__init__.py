"""Spark jobs over the logs (Part P): planning is pure, and executors read storage nodes directly.

``ledger`` and ``topic`` are the two formats; what they share lies here: options, columns, cuts, worker, error codes.
"""
