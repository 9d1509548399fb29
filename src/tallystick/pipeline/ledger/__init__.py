"""The format ``tally-ledger``: the entries of ledgers, read from bookies (Part Q)."""
