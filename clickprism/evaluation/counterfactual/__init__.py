"""Counterfactual evaluation: how many clicks a new ranker would get, estimated from the log of other rankers."""
