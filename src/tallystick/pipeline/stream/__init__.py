"""The format ``tally-stream``: the messages of streams, read from bookies (Part Q)."""
