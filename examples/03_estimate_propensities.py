"""Estimate propensities from the log itself: documents shown at several positions identify the position curve."""

import clickprism as cp

data = cp.synthetic(cp.SyntheticSettings(train_queries=400, seed=3))
made = cp.SimulationSettings(rankers=3)
log = cp.simulate(data.train, cp.PositionUser(), sessions=200_000, seed=3, settings=made)
model = cp.LogModel.fit(log.clicks)
print(f"{model.linkage.moved:,} of {model.linkage.pairs:,} query-document pairs were shown at several positions")
curve, truth = model.curve, log.observation / log.observation[0]
for position, (low, value, high) in enumerate(zip(curve.lower, curve.values, curve.upper, strict=True), start=1):
    print(f"position {position:2}: {value:.3f} [{low:.3f}, {high:.3f}], true {truth[position - 1]:.3f}")

validation = cp.judged_validation(data.validation, "nDCG(exp)@10")
settings = cp.FitSettings(epochs=15, threads=1)
for method in (cp.Click(), cp.InversePropensity(propensities=tuple(curve.values))):
    fitted = cp.fit(log.clicks, method=method, ranker=cp.Linear(), settings=settings, validation=validation)
    scores = fitted.model.score(data.test.lists)
    print(f"{method.name}: nDCG(exp)@10", round(cp.evaluate(data.test, scores, "nDCG(exp)@10").mean("nDCG(exp)@10"), 4))
