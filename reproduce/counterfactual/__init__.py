"""Do the intervals of counterfactual evaluation hold what a new ranker truly earns? Over worlds drawn by seed."""
