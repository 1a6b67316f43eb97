"""A diagnosis as tables, as JSON and as a page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clickprism._util.tables import Table, as_text, to_json
from clickprism.diagnosis.finding import Diagnosis, Finding, diagnosis_of, kept_diagnosis
from clickprism.diagnosis.position import position
from clickprism.diagnosis.report import report_of, summary, write_page
from clickprism.errors import SettingError
from clickprism.serve.page.view import read_diagnosis
from tests.diagnosis.hand_made import CURVE, hand_made
from tests.diagnosis.tiny_logs import log_of

LOG = log_of([((0, 1, 2), (1,), 40, 0), ((1, 0, 2), (2,), 10, 0)], documents=[3])
TRUST = Finding(
    "trust",
    "present",
    "Users click [far] more often at the top.",
    "Correct <before> training.",
    estimate=0.12,
    unit="of the clicks",
    interval=(0.1, 0.14),
    p_value=1e-9,
    details={"curve": np.array([1.0, np.nan])},
    table=Table("", ["position", "value"], [["1", "1.00"], ["10", "0.12"]]),
)
FOUND = Diagnosis(
    {
        "coverage": Finding("coverage", "present", "The log has enough data.", "Nothing to do."),
        "identifiability": Finding("identifiability", "present", "Relevance is identifiable.", "Nothing to do."),
        "position": position(LOG, hand_made()),
        "trust": TRUST,
        "coupling": Finding("coupling", "inconclusive", "The log has no features.", "Log them."),
    },
    sessions=35_064,
    impressions=350_640,
    as_of="2026-03-01T09:30:00+00:00",
    curve=CURVE,
)
ACCOUNT = {"rows in": 400_000}


def test_what_is_good_and_what_is_not() -> None:
    assert [each.tone for each in FOUND.findings.values()] == ["good", "good", "bad", "bad", "inconclusive"]
    assert Finding("identifiability", "absent", "", "").word == "! not identifiable"
    assert Finding("trust", "absent", "", "").tone == "good"
    assert FOUND.verdict("drift") == "inconclusive"
    with pytest.raises(SettingError, match="verdict must be one of present, absent, inconclusive"):
        Finding("trust", "unknown", "", "")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="estimate must be finite"):
        Finding("trust", "absent", "", "", estimate=float("nan"))


def test_the_summary_answers_five_questions() -> None:
    answers = {each.question: each.answer for each in summary(FOUND)}
    assert answers["Is there position bias?"] == "Yes."
    assert answers["How much?"].startswith("Lower positions are observed 38% as often as position 1 on average")
    assert answers["How much?"].endswith("Position 3 is observed 25% as often (20% to 30%).")
    assert answers["What does it do to the ranking?"].startswith("In 100% of the queries")
    assert answers["Can relevance be learned?"] == "Relevance is identifiable."
    assert answers["What to do next?"].startswith("Correct clicks for position bias")
    assert answers["What to do next?"].endswith("Then see: Trust bias, Coupling.")
    nothing = Diagnosis({"drift": Finding("drift", "absent", "", "Nothing to do.")}, 1, 1)
    assert [each.answer for each in summary(nothing)] == ["Nothing: no finding needs action."], (
        "questions that were not part of the diagnosis have no answer"
    )


def test_text_for_a_terminal() -> None:
    text = as_text(report_of(FOUND, log="shop", account=ACCOUNT).tables())
    assert text.startswith("35,064 sessions, 350,640 documents shown\nsummary\nIs there position bias?          Yes.")
    assert "! present" in text
    assert "✓ enough data" in text
    assert "[far] more often" in text
    todo = text.partition("what to do\n")[2]
    assert "Coupling" in todo
    assert "Log them." in todo
    assert "Nothing to do" not in todo
    assert max(map(len, text.splitlines())) <= 115


def test_json_is_what_the_page_of_the_service_reads(tmp_path: Path) -> None:
    report = report_of(FOUND, log="logs/shop", account=ACCOUNT)
    assert report.curve is not None
    assert report.curve["values"] == [1.0, 0.5, 0.25]
    assert report.findings[3]["details"] == {"curve": [1.0, None]}
    assert report.account == ACCOUNT
    (tmp_path / "diagnosis.json").write_text(to_json(report))
    read, problem = read_diagnosis(tmp_path)
    assert problem == ""
    assert read is not None
    assert read.as_of == FOUND.as_of
    assert [(each.title, each.word) for each in read.findings][1:3] == [
        ("Identifiability", "✓ identifiable"),
        ("Position bias", "! present"),
    ]
    assert read.findings[3].sentence == TRUST.sentence


def test_a_page_with_every_finding(tmp_path: Path) -> None:
    made = [
        write_page(tmp_path / name, FOUND, log="shop", account=ACCOUNT, settings={"seed": 0}).read_text()
        for name in ("one.html", "two.html")
    ]
    assert made[0] == made[1]
    page = made[0]
    assert page.index("Is there position bias?") < page.index("<svg") < page.index("All findings")
    assert page.count("<svg") == 1  # the curve
    assert "Correct &lt;before&gt; training." in page
    assert "Estimate: 0.12 [0.1, 0.14] of the clicks; p &lt; 0.0001" in page
    assert '<span class="sign inconclusive">? inconclusive</span>The log has no features.' in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    bare = Diagnosis({"trust": TRUST}, sessions=1, impressions=10)
    write_page(tmp_path / "bare.html", bare, log="shop", account=ACCOUNT, settings={})
    assert "400,000" in (tmp_path / "bare.html").read_text()


def test_auto_saves_a_diagnosis_and_reads_it_again() -> None:
    again = diagnosis_of(kept_diagnosis(FOUND))
    assert report_of(again, log="shop", account={}) == report_of(FOUND, log="shop", account={})
    assert again.curve is not None
    assert again.curve.values.tolist() == CURVE.values.tolist()
    assert again["trust"].table == TRUST.table
