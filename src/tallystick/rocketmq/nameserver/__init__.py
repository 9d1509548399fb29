"""The name server: which brokers have which topics, as the brokers register them."""
