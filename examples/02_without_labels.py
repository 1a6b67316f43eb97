"""No judgements at all: held-out clicks choose the best epoch, and the model goes to disk and back."""

import tempfile
from pathlib import Path

import numpy as np

import clickprism as cp

data = cp.synthetic(cp.SyntheticSettings(train_queries=500, seed=2))
log = cp.simulate(data.train, cp.PositionUser(), sessions=50_000, seed=2).clicks
held_out = np.random.default_rng(0).random(len(log)) < 0.2
fitted = cp.fit(
    log.take(~held_out),
    method=cp.DualLearning(),
    ranker=cp.MLP(hidden=(32, 16)),
    settings=cp.FitSettings(epochs=15, threads=1),
    validation=log.take(held_out),
)
print(f"best epoch {fitted.best_epoch}, click log-likelihood a session {fitted.best_value:.4f}")
with tempfile.TemporaryDirectory() as folder:
    fitted.model.save(Path(folder) / "model")
    scores = cp.Model.load(Path(folder) / "model").score(data.test.lists)
print("nDCG(exp)@10:", round(cp.evaluate(data.test, scores, "nDCG(exp)@10").mean("nDCG(exp)@10"), 4))
