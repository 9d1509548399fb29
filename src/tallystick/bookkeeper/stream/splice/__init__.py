"""Streams that sinks write: in each commit whole ledgers are spliced into the list, exactly once."""
