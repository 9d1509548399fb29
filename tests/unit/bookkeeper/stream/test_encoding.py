"""What is appended, as bytes of an entry."""

from __future__ import annotations
