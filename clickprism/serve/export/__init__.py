"""Rankers in the formats of other engines."""
