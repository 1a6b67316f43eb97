"""Whole experiments: data, users, methods, measures, in one call."""
