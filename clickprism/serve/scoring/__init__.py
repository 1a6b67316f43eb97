"""Scores of candidates by a bundle."""
