"""`auto`: killed at every stage it goes on to the same result; each decision has its reason; no features, no ranker."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.choice.candidates import METHODS
from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Diagnosis, Finding
from clickprism.errors import DataError, SettingError
from clickprism.experiments.auto.folder import EPOCH, POINTS, STAGES
from clickprism.experiments.auto.run import AutoResult, auto
from clickprism.experiments.auto.settings import AutoSettings
from clickprism.experiments.auto.words import MENDED, next_steps
from clickprism.serve.bundle import Bundle
from clickprism.serve.scorer import open_scorer
from clickprism.types import Clicks
from tests.experiments.auto.auto_children import NOON, run, small_world

ONE = AutoSettings(processes=1)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> AutoResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(EPOCH, NOON)
        return auto(
            small_world().logged, out=tmp_path_factory.mktemp("auto") / "out", settings=AutoSettings(processes=1)
        )


def timeless(value: Any) -> Any:
    """The same without what a clock said."""
    if isinstance(value, dict):
        return {name: timeless(each) for name, each in value.items() if "seconds" not in name}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def test_killed_at_every_point_it_goes_on_to_the_same_result(
    undisturbed: AutoResult, forks: ForkServerContext, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for point in (*POINTS, ""):
        process = forks.Process(target=run, args=(str(out), point))
        process.start()
        process.join()
        assert process.exitcode == (-signal.SIGKILL if point else 0), point
    for stage in STAGES:
        kept = [json.loads((each / "stages" / f"{stage}.json").read_text()) for each in (undisturbed.out, out)]
        assert timeless(kept[0]) == timeless(kept[1]), stage
    first, second = Bundle.load(undisturbed.out / "bundle"), Bundle.load(out / "bundle")
    assert first.manifest.files == second.manifest.files
    assert first.version == second.version
    assert not list(out.rglob("*.json.*"))


def test_a_second_call_does_nothing_and_says_the_same(undisturbed: AutoResult) -> None:
    told: list[tuple[str, str]] = []
    again = auto(
        small_world().logged,
        out=undisturbed.out,
        settings=AutoSettings(processes=1),
        progress=lambda *what: told.append(what),
    )
    assert [text for stage, text in told if stage != "read"] == ["was done before"] * (len(STAGES) - 1)
    assert again.text() == undisturbed.text()
    assert again.seconds == undisturbed.seconds


def test_every_decision_has_its_reason_and_its_numbers(undisturbed: AutoResult) -> None:
    kept = json.loads((undisturbed.out / "auto.json").read_text())
    assert [each["stage"] for each in kept["decisions"]] == ["read", "diagnosis", "choice", "value", "bundle"]
    assert all(each["decision"] and each["reason"] for each in kept["decisions"])
    assert kept["decisions"][0]["numbers"]["sessions"] == 3000
    assert kept["chosen"] == undisturbed.chosen
    assert {each["name"] for each in kept["found"]} == set(undisturbed.diagnosis.findings)
    assert kept["bundle"]["version"] == Bundle.load(undisturbed.out / "bundle").version
    page = undisturbed.report.read_text()
    assert "What was chosen, and why" in page
    assert str(undisturbed.chosen) in page
    for heading in ("What was found", "What was chosen, and why", "What could not be known", "What to do next"):
        assert heading in undisturbed.text()
    assert f"clickprism serve {undisturbed.out}/bundle" in undisturbed.text()


def test_the_bundle_scores_raw_features_as_the_chosen_ranker_does(undisturbed: AutoResult) -> None:
    assert undisturbed.bundle is not None
    bundle = Bundle.load(undisturbed.bundle)
    assert bundle.manifest.feature_names == tuple(f"f{number}" for number in range(1, 7))
    assert bundle.manifest.naive is not None
    assert b'"queries"' in bundle.read("examples.json")
    open_scorer(bundle).warm()


def test_a_bias_that_the_chosen_model_leaves_in_is_said() -> None:
    names = ("position", "trust", "interaction")
    found = Diagnosis({name: Finding(name, "present", "It is there.", "Mend it.") for name in names}, 9, 90)
    value = {"advice": "Interleave it."}

    def told(chosen: str | None, **numbers: bool) -> list[str]:
        about: dict[str, Any] = {
            "chosen": chosen,
            "refused": "" if chosen else "None.",
            "instead": [],
            "numbers": numbers,
        }
        steps = next_steps({"choice": about, "value": value}, found)
        return [step.partition(":")[0] for step in steps if step != value["advice"]]

    assert told("pooled/mlp") == ["Trust bias", "Interaction"]
    assert told("pooled/mlp", browsing=True) == ["Trust bias"]
    assert told("trust/mlp") == ["Interaction"]
    assert told("click/mlp") == told(None) == ["Position bias", "Trust bias", "Interaction"]
    choice: dict[str, Any] = {"chosen": "click/mlp", "refused": "", "instead": [], "numbers": {}}
    assert next_steps({"choice": choice, "value": value}, found)[1] == (
        "Position bias: click/mlp does not correct for it. Mend it."
    )
    assert set(MENDED) == set(METHODS)
    bends = Diagnosis({"coupling": Finding("coupling", "present", "It is there.", "Mend it.")}, 9, 90)
    choice["numbers"] = {"pooled": {"pooled": {}, "pooled-bend": {}}}
    assert "do not bear it out; click/mlp" in next_steps({"choice": choice, "value": value}, bends)[1]


def test_other_settings_are_refused(undisturbed: AutoResult) -> None:
    with pytest.raises(DataError, match=r"was made with other settings \(seed 0\)"):
        auto(small_world().logged, out=undisturbed.out, settings=AutoSettings(seed=1))
    for field, value in (("budget", timedelta(0)), ("seed", -1), ("processes", 0)):
        with pytest.raises(SettingError, match=f"{field} must be"):
            AutoSettings(**{field: value})  # type: ignore[arg-type]


def test_without_features_it_diagnoses_and_says_what_can_be_done_instead(tmp_path: Path) -> None:
    logged = small_world().logged
    clicks = logged.clicks
    bare = clicks.lists.with_features(np.zeros((clicks.lists.documents, 0), np.float32))
    told = Clicks(bare, clicks.offsets, clicks.rows, clicks.positions, clicks.clicks, clicks.impressions)
    result = auto(Logged(told), out=tmp_path / "out")
    assert result.bundle is None
    assert result.chosen is None
    assert not (tmp_path / "out" / "bundle").exists()
    assert "No ranker can be trained: the documents of the log have no features" in result.text()
    assert any("clickprism relevance estimate, clickprism relevance judgments" in step for step in result.steps)
    assert "it does not tell days, rankers, what chance placed" in result.text().replace("\n          ", " ")
