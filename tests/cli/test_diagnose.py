"""`clickprism diagnose` on a session file and on a file of clickprism simulate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from clickprism.cli_old.app import app
from clickprism.data.clicks import save_clicks
from clickprism.diagnosis.diagnose import FINDINGS
from tests.diagnosis.tiny_logs import small_world


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["diagnose", *map(str, words)])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


def read(*words: object) -> Any:
    return json.loads(run(*words, "--json", "--quiet").stdout)


@pytest.fixture(scope="module")
def tsv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions with days, of two rankers that disagree; what stands second is seen half as often."""
    rng = np.random.default_rng(5)
    lines = ["query\tdocuments\tclicks\tday\tranker"]
    for session in range(6000):
        query, ranker = rng.integers(30), rng.integers(2)
        order = ["a", "b", "c"] if ranker else ["b", "c", "a"]
        rate = 0.2 + 0.5 * (query % 3 == np.arange(3))
        seen = np.array([1.0, 0.5, 0.25])
        chance = seen * np.array([rate["abc".index(name)] for name in order])
        clicked = [name for name, hit in zip(order, rng.random(3) < chance, strict=True) if hit]
        lines.append(f"q{query}\t{','.join(order)}\t{','.join(clicked)}\t2026-03-{1 + session % 4:02}\tr{ranker}")
    file = tmp_path_factory.mktemp("log") / "log.tsv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_every_finding_in_words_and_as_json(tsv: Path) -> None:
    facts = read(tsv)
    assert [each["name"] for each in facts["findings"]] == list(FINDINGS)
    found = {each["name"]: each for each in facts["findings"]}
    assert found["position"]["verdict"] == "present"
    assert found["position"]["number"] == pytest.approx(0.375, abs=0.06)  # of .5 and .25
    assert found["coupling"]["verdict"] == "unknown"
    assert found["trust"]["verdict"] != "present"
    assert found["coverage"]["details"]["rankers"] == ["r0", "r1"]
    for each in facts["findings"]:
        assert each["sentence"]
        assert each["advice"]
    text = run(tsv, "--quiet").stdout
    assert "! present" in text
    assert "The log has no features" in " ".join(text.split())


def test_a_page_and_json_in_a_folder(tsv: Path, tmp_path: Path) -> None:
    run(tsv, "--only", "position,trust", "--out", tmp_path / "made")
    page = (tmp_path / "made" / "report.html").read_text()
    assert "Position bias" in page
    assert "<svg" in page
    kept = json.loads((tmp_path / "made" / "diagnosis.json").read_text())
    assert [each["name"] for each in kept["findings"]] == ["position", "trust"]


def test_a_simulated_file_has_no_features_without_its_data(tmp_path: Path) -> None:
    file = tmp_path / "clicks.npz"
    save_clicks(small_world(queries=20, sessions=2000).clicks, file)
    facts = read(file, "--only", "coupling")
    assert facts["findings"][0]["verdict"] == "unknown"


def test_a_finding_that_does_not_exist_is_named(tsv: Path) -> None:
    assert "coverage" in run(tsv, "--only", "luck", code=2).output
