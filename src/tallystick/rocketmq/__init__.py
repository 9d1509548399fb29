"""Wing two: the primary-replica log (Part H), byte-compatible with Apache RocketMQ on the wire and on disk."""
