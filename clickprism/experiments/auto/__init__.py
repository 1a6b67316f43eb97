"""`auto`: from a log to a served ranker, in stages that can be resumed."""
