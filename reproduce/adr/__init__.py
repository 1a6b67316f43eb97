"""Approximated Doubly Robust Search Relevance Estimation (Zou et al. 2022), run again."""
