"""The broker: topics, groups and offsets, and the requests of clients, slaves and name servers."""
