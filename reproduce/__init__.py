"""Papers, run again: one folder a paper, on the public API only."""
