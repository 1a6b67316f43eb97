"""Do the intervals of counterfactual evaluation contain the clicks that a ranker truly gets? In simulated worlds."""
