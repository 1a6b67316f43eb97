"""The example notebooks run from the first cell to the last, and show what their text says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_notebook(name: str) -> dict[str, Any]:
    """Execute the code cells of a notebook in order, in one namespace, and return it."""
    cells = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), name, "exec"), names)  # noqa: S102 - the notebooks of this repository
    return names


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLICKPRISM_CACHE", str(tmp_path / "cache"))


def test_scores_from_a_frame_agree_with_relevance_better_than_click_rates_do() -> None:
    agreement = run_notebook("frame_to_ranker.ipynb")["agreement"]
    assert agreement["score"] > agreement["click_rate"]


def test_the_estimated_curve_is_closer_to_the_truth_than_the_click_rate_is(tmp_path: Path) -> None:
    curves = run_notebook("biases_of_a_log.ipynb")["curves"]
    error = curves.sub(curves["truth"], axis=0).abs().mean()
    assert error["estimate"] < 0.5 * error["click rate"]
    assert (tmp_path / "curves.png").is_file()


def test_coupling_costs_a_position_only_method_more_than_the_others(tmp_path: Path) -> None:
    ndcg = run_notebook("figure_of_a_paper.ipynb")["ndcg"]
    lost = {name: values[0] - values[-1] for name, values in ndcg.items()}
    assert lost["dla"] == max(lost.values())
    assert (tmp_path / "figure.png").is_file()


def test_every_notebook_is_tested_and_holds_no_outputs() -> None:
    tested = {"frame_to_ranker.ipynb", "biases_of_a_log.ipynb", "figure_of_a_paper.ipynb"}
    assert {path.name for path in EXAMPLES.glob("*.ipynb")} == tested
    for path in EXAMPLES.glob("*.ipynb"):
        assert not any(cell.get("outputs") for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
