"""One broker's messages on disk: the CommitLog, and what reput derives from it (ConsumeQueue and index)."""
