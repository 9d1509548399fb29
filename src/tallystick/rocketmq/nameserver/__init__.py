"""The name server: which brokers have which topics, as they say themselves."""
