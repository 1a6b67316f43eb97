"""What methods say about observation, in training and in comparisons."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from clickprism._util.tables import to_plain
from clickprism.experiments.results import Results, write_results
from clickprism.experiments.train import train_ranker
from tests.experiments.conftest import SETTINGS


def test_a_comparison_measures_delta_ci(comparison: Results, tmp_path: Path) -> None:
    results = comparison
    runs = {(run.label, run.seed): run for run in results.runs}
    gaps = [gap.mean for seed in (0, 1) if (gap := runs["inforank", seed].independence) is not None]
    assert set(results.delta_ci) == {"inforank"}
    assert results.delta_ci["inforank"].mean == pytest.approx(np.mean(gaps))
    assert runs["click", 0].independence is None
    page = write_results(results, tmp_path, title="methods").read_text()
    epochs = ", ".join(str(run.best) for run in results.of("inforank"))
    assert re.search(rf"true and estimated, at the best epoch of at most \d+ \(inforank {epochs}\)", page)
    assert f"Delta-CI {np.mean(gaps):.4f}" in page
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept == to_plain(results)
    assert kept["delta_ci"]["inforank"]["mean"] == pytest.approx(np.mean(gaps))
    assert [run["label"] for run in kept["runs"]] == [run.label for run in results.runs]


def test_training_measures_delta_ci(tmp_path: Path) -> None:
    trained = train_ranker(SETTINGS, method="inforank", out=tmp_path / "inforank")
    gap = trained.independence
    assert gap is not None
    assert f"Delta-CI {gap.mean:.4f} ± {gap.error:.4f}, " in trained.tables()[0].text()
    assert len(gap.by_position) == 10
    assert train_ranker(SETTINGS, method="click", out=tmp_path / "click").independence is None
