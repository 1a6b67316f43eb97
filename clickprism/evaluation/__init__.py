"""How good a ranking is, and whether the difference is real. Knows no method."""
