"""Repair: what bookies lost, or may have lost, is made good from the other replicas."""
