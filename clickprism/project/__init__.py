"""A project: one folder with a settings file, from a growing log to a ranker that stays right."""
