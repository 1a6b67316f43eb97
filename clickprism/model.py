"""Fitted rankers: score, save, load."""
