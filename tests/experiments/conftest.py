"""One small comparison, which several tests look at."""

from __future__ import annotations

import pytest

from clickprism.data.synthetic import SyntheticSettings
from clickprism.experiments.compare import compare_methods
from clickprism.experiments.results import Results
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.training.settings import FitSettings

SETTINGS = ExperimentSettings(
    data=DataSettings(
        synthetic=SyntheticSettings(train_queries=60, validation_queries=10, test_queries=20, features=12, items=200)
    ),
    ranker={"name": "mlp", "hidden": [8]},
    methods={"labels": {}, "click": {}, "inforank": {}},
    fit=FitSettings(epochs=2, threads=1),
    runs=2,
)


@pytest.fixture(scope="session")
def comparison() -> Results:
    """Return a comparison of three methods in two runs."""
    return compare_methods(SETTINGS)
