"""One storage node: journal, entry log, index, fencing, garbage collection, server."""
