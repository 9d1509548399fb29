"""Bytes to frozen values and back."""
