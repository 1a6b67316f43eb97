"""From judged lists to simulated clicks to a debiased ranker, and whether it is better."""

import clickprism as cp

data = cp.synthetic(cp.SyntheticSettings(train_queries=500, test_queries=1000, seed=1))
log = cp.simulate(data.train, cp.PositionUser(severity=1.0), sessions=50_000, seed=1)
print(f"{log.clicks.sessions:,} sessions on {len(log.clicks):,} distinct lists, {log.clicks.clicks.sum():,} clicks")

validation = cp.judged_validation(data.validation, "nDCG(exp)@10")
settings = cp.FitSettings(epochs=20, threads=1)
results = {}
for method in (cp.Click(), cp.DualLearning()):
    fitted = cp.fit(log.clicks, method=method, ranker=cp.Linear(), settings=settings, validation=validation)
    results[method.name] = cp.evaluate(data.test, fitted.model.score(data.test.lists), ["nDCG(exp)@10", "MRR"])
    if fitted.observation is not None:
        print("observation learned:", fitted.observation.round(2).tolist())
        print("             truth:", (log.observation / log.observation[0]).round(2).tolist())
print(cp.compare(results, baseline="click", data="embedded data, seed 1", seeds=[1]))
