"""A/B tests: searches that show one ranker each, with arithmetic by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clickprism.cli.reference import examples
from clickprism.evaluation.ab import MEASURES, BucketSettings, compare_buckets
from clickprism.log.ingest import ingest
from clickprism.log.store import LogStore
from tests.log.raw_logs import write_lines

Run = Callable[..., Any]
SEARCHES: list[tuple[str, str | None, set[int]]] = [
    ("old", "u1", {0}), ("old", "u1", set()), ("old", "u2", {1, 2}), ("old", None, set()),
    ("new", "u3", {0}), ("new", "u4", {1}), ("new", "u4", {0}),
]  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("buckets")
    rows: list[dict[str, Any]] = [
        {
            "time": f"2026-03-01T10:{number:02d}:00Z",
            "search_id": f"s{number}",
            "query": "q",
            "document_id": f"d{place}",
            "position": place + 1,
            "click": place in clicked,
            "user_id": user,
            "ranker": ranker,
        }
        for number, (ranker, user, clicked) in enumerate(SEARCHES)
        for place in range(3)
    ]
    mixed = [{**row, "search_id": "both", "ranker": ("old", "new")[row["position"] % 2]} for row in rows[:3]]
    ingest([write_lines(folder / "rows.jsonl", [*rows, *mixed])], folder / "mylog")
    return folder / "mylog"


def test_buckets_are_compared_with_the_control_by_user(log: Path) -> None:
    """Old: 2 of 4 searches of 3 users are clicked, with residuals 0, 1/2, -1/2; new: 3 of 3 of 2 users."""
    found = compare_buckets(LogStore.open(log), BucketSettings())
    old, new = found.buckets
    assert (old.ranker, old.searches, old.users, old.differences) == ("old", 4, 3, {})
    assert (new.ranker, new.searches, new.users) == ("new", 3, 2), "an interleaved search is in no bucket"
    assert old.values == pytest.approx({"clicked_share": 0.5, "clicks_per_search": 0.75, "reciprocal_position": 0.375})
    assert new.values == pytest.approx({"clicked_share": 1, "clicks_per_search": 1, "reciprocal_position": 2.5 / 3})
    reach = 1.959964 * math.sqrt(0.5 / 4**2 * 3 / 2)
    assert new.differences["clicked_share"] == pytest.approx((0.5, 0.5 - reach, 0.5 + reach))
    assert list(new.differences) == list(MEASURES)


def test_the_command_prints_a_table_for_each_measure_or_says_why_it_cannot(
    log: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log.parent)
    for line in examples(["evaluate", "buckets"]):
        assert "+0.5000" in cli(*line.split()[1:]).stdout
    shown = cli("evaluate", "buckets", log, "--control", "new", "--json").json
    assert [each["ranker"] for each in shown["buckets"]] == ["new", "old"]
    told = cli("evaluate", "buckets", log, "--control", "none", code=3).stderr
    assert "has no bucket 'none'. Its buckets are: new, old" in told
    assert "no two buckets" in cli("evaluate", "buckets", log, "--days", "2026-03-02", code=3).stderr
