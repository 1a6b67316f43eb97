"""A diagnosis in words, as JSON and as a page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from clickprism.diagnosis.finding import Diagnosis, Finding
from clickprism.diagnosis.pictures import lines_by
from clickprism.diagnosis.report import as_json, as_text, summary, tone, write_diagnosis
from clickprism.serve.page.diagnosis import read_diagnosis

POSITION = Finding(
    "position",
    "present",
    "Position 10 is seen [far] less than position 1.",
    "Debias <before> training.",
    number=0.12,
    unit="of position 1",
    interval=(0.1, 0.14),
    p_value=1e-9,
    details={"curve": np.array([1.0, np.nan])},
    table=(["position", "seen"], [["1", "1.00"], ["10", "0.12"]]),
    figure=lambda: lines_by([1.0, 10.0], {"seen": np.array([1.0, 0.12])}, xlabel="position", ylabel="seen"),
)
FOUND = Diagnosis(
    {
        "coverage": Finding("coverage", "present", "There is enough to learn from.", "Nothing to do."),
        "position": POSITION,
        "coupling": Finding("coupling", "unknown", "The log has no features.", "Log them."),
    },
    sessions=35_064,
    impressions=350_640,
    as_of="2026-03-01T09:30:00+00:00",
)
ACCOUNT = {"rows in": 400_000}


def test_what_is_good_to_have_and_what_is_not() -> None:
    assert [tone(each) for each in FOUND.findings.values()] == ["good", "bad", "unknown"]
    assert tone(Finding("identifiability", "absent", "", "")) == "bad"
    assert tone(Finding("trust", "absent", "", "")) == "good"


def test_an_axis_of_positions_has_no_halves() -> None:
    places = np.arange(1.0, 21.0)
    (axes,) = lines_by(places, {"": 1 / places}, xlabel="position", ylabel="seen").axes
    assert all(tick == round(tick) for tick in axes.get_xticks())
    (axes,) = lines_by(places / 20, {"": places}, xlabel="share", ylabel="seen").axes
    assert any(tick != round(tick) for tick in axes.get_xticks())


def test_words_for_a_terminal() -> None:
    text = as_text(FOUND)
    assert text.startswith("35,064 sessions, 350,640 documents shown")
    assert "! present" in text
    assert "✓ enough" in text
    assert "[far] less" in text
    assert "0.12 [0.1, 0.14] of" in text
    todo = text.partition("What to do")[2]
    assert "Coupling: Log them." in todo
    assert "Nothing to do" not in todo
    assert max(map(len, text.splitlines())) <= 110


def test_json_is_what_the_page_of_the_service_reads(tmp_path: Path) -> None:
    facts = as_json(FOUND, log="logs/shop", account=ACCOUNT)
    assert facts["findings"][1]["details"] == {"curve": [1.0, None]}
    assert facts["account"] == ACCOUNT
    (tmp_path / "diagnosis.json").write_text(json.dumps(facts))
    read, problem = read_diagnosis(tmp_path)
    assert problem == ""
    assert read is not None
    assert read.as_of == FOUND.as_of
    assert [(each.title, each.word) for each in read.findings][:2] == [
        ("Coverage", "enough"),
        ("Position bias", "present"),
    ]
    assert read.findings[1].sentence == POSITION.sentence


def test_a_page_with_every_finding(tmp_path: Path) -> None:
    made = [
        write_diagnosis(tmp_path / name, FOUND, log="shop", account=ACCOUNT, settings={"seed": 0}).read_text()
        for name in ("one.html", "two.html")
    ]
    assert made[0] == made[1]
    page = made[0]
    assert "Debias &lt;before&gt; training." in page
    assert page.count("<svg") == 1
    assert "0.12 [0.1, 0.14] of position 1; p &lt; 0.001" in page
    assert '<span class="sign unknown">? unknown</span>The log has no features.' in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    bare = Diagnosis({"position": POSITION}, sessions=1, impressions=10)
    write_diagnosis(tmp_path / "bare.html", bare, log="shop", account=ACCOUNT, settings={})
    assert "400,000" in (tmp_path / "bare.html").read_text()
    assert "This log cannot tell: Coupling." in summary(FOUND)
