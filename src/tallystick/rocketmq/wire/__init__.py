"""The wire formats: bytes to values and back."""
