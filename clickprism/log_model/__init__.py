"""The fitted model of a log: every command reads relevance and observation from it."""
