"""Remoting commands over TCP: one server port, and a client of many addresses."""
