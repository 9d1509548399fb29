"""Wing one: quorum-replicated ledgers (Part Q), wire- and metadata-compatible with Apache BookKeeper."""
