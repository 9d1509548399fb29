"""Spark jobs over the logs: planning (pure), schemas, and the sources that read storage nodes directly (Part P)."""
