"""Which method to take, chosen by the log alone: candidates, criteria that need no labels, the search."""
