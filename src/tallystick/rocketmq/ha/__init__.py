"""The CommitLog to the slaves: feed (master side of one link), follow (slave side), acks (who waits for whom)."""
