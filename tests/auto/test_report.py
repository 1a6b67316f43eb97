"""The words, the figure and the pages of `auto`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.auto import report
from clickprism.auto.run import AutoResult
from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Diagnosis, Finding
from clickprism.evaluation.counterfactual.result import (
    ASSUMPTIONS,
    CounterfactualResult,
    Estimate,
    Range,
)
from clickprism.serve.bundle.bundle import Bundle
from clickprism.types import Clicks, Lists

CURVE = {"name": "observation", "values": [1.0, 0.5], "lower": [1.0, 0.4], "upper": [1.0, 0.6]}
PASSED = {
    "name": "order",
    "verdict": "passed",
    "sentence": "Relevance falls with position.",
    "numbers": {"slope": -0.2},
}
FAILED = {"name": "fit", "verdict": "failed", "sentence": "The model does not fit.", "numbers": {"p": None}}


def choice(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "chosen": "linear",
        "use": "corrected",
        "summary": "a linear ranker",
        "reason": "It predicts best.",
        "refused": "",
        "instead": [],
        "checks": [PASSED],
        "scope": {"rerank_depth": 10, "reason": "Use the ranker to re-rank 10 results: others are unlike them."},
        "selection": "",
        "curve": CURVE,
        "position": {"verdict": "present", "estimate": 0.5, "lower": 0.4, "upper": 0.6, "note": ""},
    }
    return made | changes


def diagnosis(**findings: Finding) -> Diagnosis:
    return Diagnosis(findings, 9, 90)


def stages(**changes: Any) -> dict[str, Any]:
    value = report.valued(None, "the log has no clicks")
    return {"read": {"outcome": "click"}, "choice": choice(**changes), "value": value}


def test_the_verdict_says_what_was_corrected_how_sure_and_for_what_use() -> None:
    assert report.verdict(stages(), diagnosis()) == [
        "The ranker, a linear ranker, was trained on clicks corrected for position bias: lower positions are observed"
        " 50% as often as position 1 on average (95% interval 40% to 60%).",
        "The check of the correction passed.",
        "Use the ranker to re-rank 10 results: others are unlike them.",
    ]
    assert len(report.verdict(stages(expected_change=0.05), diagnosis())) == 3
    assert "expects 4% fewer clicks" in report.verdict(stages(expected_change=-0.04), diagnosis())[3]
    several = report.verdict(stages(checks=[PASSED, FAILED]), diagnosis())
    assert several[1] == "1 of 2 checks passed; not passed: fit (failed)."
    assert report.verdict(stages(checks=[PASSED, PASSED]), diagnosis())[1] == "All 2 checks of the correction passed."
    booked = report.verdict(stages() | {"read": {"outcome": "booking"}}, diagnosis())
    assert booked[1].startswith("It ranks by booking, not by clicks alone")
    raw = report.verdict(stages(use="raw clicks"), diagnosis())
    assert raw[0].endswith("Position bias remains in it.")


def test_the_verdict_states_no_curve_as_a_fact_that_the_log_does_not_show() -> None:
    unlinked = {"verdict": "inconclusive", "estimate": 1.82, "lower": 1.1, "upper": 2.5, "note": "nothing links them"}
    said = report.verdict(stages(position=unlinked), diagnosis())[0]
    assert said.endswith("corrected for position bias. How large that bias is, is uncertain: nothing links them.")
    said = report.verdict(stages(position=unlinked | {"lower": 0.4, "note": ""}), diagnosis())[0]
    assert said.endswith("is uncertain: lower positions may be observed 40% to 250% as often as position 1.")
    given = {"verdict": "inconclusive", "estimate": 0.6, "lower": None, "upper": None, "note": "the curve was given"}
    said = report.verdict(stages(position=given, curve=CURVE | {"name": "given"}), diagnosis())[0]
    assert said.endswith(
        "with the flattest curve within its interval: lower positions count as observed 60% as often as position 1 on"
        " average."
    )


def test_commands_to_run_next(tmp_path: Path) -> None:
    assert report.commands(tmp_path, "log", bundle=True)[0] == f"clickprism serve {tmp_path}/bundle"
    assert report.commands(tmp_path, None, bundle=False) == []
    judge = "clickprism relevance judgments estimates.parquet --out judgments.csv"
    folder = f"clickprism relevance estimate {tmp_path} --out estimates.parquet"
    assert report.commands(tmp_path, str(tmp_path), bundle=False) == [folder, judge]
    assert report.commands(tmp_path, "my sessions.tsv", bundle=False) == [
        "clickprism relevance estimate 'my sessions.tsv' --out estimates.parquet",
        judge,
    ]
    mapped = report.commands(tmp_path, "shop.db", bundle=False, options=["--query", "select 1", "--map", "query=q"])
    assert mapped[0] == "clickprism relevance estimate shop.db --query 'select 1' --map query=q --out estimates.parquet"
    assert report.commands(tmp_path, "shop.db", bundle=False, estimable=False) == []
    assert report.commands(tmp_path, "clicks.npz", bundle=False) == ["clickprism bias position clicks.npz"]


def test_advice_on_what_the_model_corrects_is_left_out() -> None:
    found = {
        "position": Finding("position", "present", "There is bias.", "Correct it."),
        "trust": Finding("trust", "present", "There is trust.", "Correct it.", details={"used": True}),
        "coupling": Finding("coupling", "present", "Documents matter.", "Use lbd.", details={"used": False}),
        "drift": Finding("drift", "absent", "No drift.", "Nothing to do."),
        "coverage": Finding("coverage", "inconclusive", "Few searches.", "Log more."),
    }
    first = report.ADVICE["unknown"]
    coupling = f"Coupling: {report.NOT_CORRECTED.format(method='lbd')}"
    assert report.next_steps(stages(), diagnosis(**found)) == [first, coupling, "Coverage: Log more."]
    raw = report.next_steps(stages(use="raw clicks"), diagnosis(**found))
    assert raw[1:4] == ["Position bias: Correct it.", "Coupling: Use lbd.", "Coverage: Log more."]  # no advice twice
    refused = {"choice": report.refused(report.WITHOUT_FEATURES), "value": dict(report.NO_VALUE)}
    assert report.next_steps(refused, diagnosis())[0] == report.INSTEAD[0]
    without_clicks = {**refused, "choice": report.refused(report.WITHOUT_FEATURES, estimable=False)}
    assert report.next_steps(without_clicks, diagnosis())[0] == report.MORE_DATA[0]
    assert report.unknown(stages(), diagnosis(**found))[0] == "Few searches."


def test_estimated_clicks_in_a_sentence() -> None:
    best = Estimate(
        "snips", Range(0.6, 0.5, 0.7), Range(0.1, 0.05, 0.15), "", 0.0, 0.0, 500.0, ASSUMPTIONS["snips"]
    )  # fmt: skip
    result = CounterfactualResult(Range(0.5, 0.4, 0.6), {"snips": best}, "clicks", 10, 100, 10, None)  # type: ignore[arg-type]
    value = report.valued(result)
    assert (
        "0.600 clicks per search, where the log has 0.500: +20.0% (95% interval +10.0% to +30.0%)" in value["sentence"]
    )
    assert value["advice"] == report.ADVICE["better"]
    assert value["method"].startswith("Estimator: snips, which assumes: nothing about how users browse")
    assert not value["refusal"]
    nothing = report.valued(None, "the log has no clicks")
    assert nothing["refusal"] == "The log does not show how many clicks the ranker would get: the log has no clicks."
    assert not nothing["sentence"]


class Known:
    """The part of a checked choice that the means by position read: relevance .8, .2 and .5 of three documents."""

    curve = (1.0, 0.5)

    def cold(self) -> Any:
        return np.array([0.8, 0.2, 0.5])

    @property
    def model(self) -> Known:
        return self


def test_means_by_position_as_logged_and_re_ranked() -> None:
    """List A (3 searches): documents 0, 1. List B (1 search): documents 2, 0. Scores put 1 before 2 before 0."""
    lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"]))
    clicks = Clicks(
        lists,
        np.array([0, 2, 4]),
        np.array([0, 1, 2, 0]),
        np.array([1, 2, 1, 2]),
        np.array([2, 1, 1, 0]),
        np.array([3, 1]),
    )
    found = report.by_position(Known(), Logged(clicks), np.array([0.0, 2.0, 1.0]))  # type: ignore[arg-type]
    assert found["click_rate"] == pytest.approx([3 / 4, 1 / 4])
    assert found["relevance"] == pytest.approx([(3 * 0.8 + 0.5) / 4, (3 * 0.2 + 0.8) / 4])
    assert found["relevance_reranked"] == pytest.approx([(3 * 0.2 + 0.5) / 4, (3 * 0.8 + 0.8) / 4])


def test_every_decision_has_its_reason_and_its_numbers(undisturbed: AutoResult) -> None:
    kept = json.loads((undisturbed.out / "auto.json").read_text())
    assert kept["log"]["sentence"].startswith("mylog: ")
    assert kept["choice"]["reason"]
    assert all(each["sentence"] and each["numbers"] for each in kept["choice"]["checks"])
    assert kept["choice"]["scope"]["reason"]
    assert kept["value"]["sentence"] or kept["value"]["refusal"]
    assert kept["log"]["queries"] == 30
    assert kept["chosen"] == undisturbed.chosen
    assert kept["verdict"] == list(undisturbed.verdict)
    assert {each["name"] for each in kept["found"]} == set(undisturbed.diagnosis.findings)
    assert undisturbed.bundle is not None
    assert kept["bundle"]["version"] == Bundle.load(undisturbed.bundle).version
    candidates = {each["name"]: each for each in kept["choice"]["candidates"]}
    assert {"linear", "imitation", "raw clicks"} <= candidates.keys()
    assert candidates[kept["chosen"]]["gain"] == 0


def test_the_terminal_shows_one_screen(undisturbed: AutoResult) -> None:
    text = undisturbed.text(log="mylog")
    lines = text.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 110
    assert [line for line in lines if line and not line.startswith(" ")][:2] == ["Verdict", "Checks"]
    assert f"clickprism serve {undisturbed.out}/bundle" in text
    assert "`" not in text


def test_the_page_has_one_figure_and_the_verdict_before_the_folds(undisturbed: AutoResult) -> None:
    page = undisturbed.report.read_text()
    top, folds = page.split("<details>", 1)
    assert top.count("<svg") == 1
    for sentence in undisturbed.verdict:
        assert sentence.split("'")[0].split("%")[0] in top
    assert "What to do next" in top
    headings = re.findall(r"<summary>(.+?)</summary>", "<details>" + folds)
    shown = [heading for heading in headings if not heading.startswith("The numbers")]
    assert shown[:4] == ["Candidates", "Checks", "Estimated clicks", "Findings"]
    assert "An imitation of the engine&#39;s own order" in folds or "imitation of the engine" in folds
