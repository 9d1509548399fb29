"""The coordination service: bookie registrations, cookies, ledger metadata by compare-and-set (Q2, Q3)."""
