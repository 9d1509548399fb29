"""The protocol that a ledger's client runs: striping, placement, add, read, recovery (Q1 to Q17)."""
