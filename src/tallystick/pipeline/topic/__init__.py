"""The format ``tally-topic``: the messages of a topic, read from its masters or slaves (Part H)."""
