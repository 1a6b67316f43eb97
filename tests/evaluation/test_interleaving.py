"""Team draft, credit and preference: by hand, on simulated users, and from a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickprism.cli.reference import examples
from clickprism.errors import DataError, SettingError
from clickprism.evaluation.interleaving import by_user, preference, sign_test, team_draft, winners
from clickprism.log.engines.base import connect
from clickprism.log.ingest import ingest
from clickprism.log.load import interleaved_searches
from clickprism.log.sessions import update_sessions
from clickprism.log.store import LogStore
from clickprism.types import Float64, Int64
from tests.log.raw_logs import write_lines

Run = Callable[..., Any]
RANKINGS = st.permutations(range(6)).flatmap(lambda all_: st.integers(0, 6).map(lambda size: list(all_[:size])))
SEEN = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])


@given(RANKINGS, RANKINGS, st.text(max_size=5), st.none() | st.integers(0, 8))
def test_a_draft_is_fair(first: list[int], second: list[int], request: str, length: int | None) -> None:
    draft = team_draft(first, second, request_id=request, length=length)
    whole = set(first) | set(second)
    assert (
        len(draft.documents) == len(set(draft.documents)) == min(len(whole), len(whole) if length is None else length)
    )
    assert draft == team_draft(first, second, request_id=request, length=length)
    taken: set[int] = set()
    for place, (document, team) in enumerate(zip(draft.documents, draft.teams, strict=True)):
        left = [each for each in (first, second)[team] if each not in taken]
        assert document == left[0], "each drafts its best document left"
        taken.add(document)
        counts = Counter(draft.teams[: place + 1])
        if set(first) == set(second) and place % 2:
            assert counts[0] == counts[1], "after each round both have drafted as many"
    if len(first) and first == second and (length is None or length >= len(first)):
        assert draft.documents == first


def test_coins_are_fair_and_independent() -> None:
    drafts = [team_draft(range(600), range(600), request_id=f"request {i}").teams for i in range(40)]
    coins = np.array(drafts)[:, ::2]
    assert abs(coins.mean() - 0.5) < 4 * 0.5 / np.sqrt(coins.size)
    assert np.abs(coins.mean(axis=1) - 0.5).max() < 4.5 * 0.5 / np.sqrt(coins.shape[1])
    assert len({tuple(each) for each in drafts}) == 40
    assert abs(np.corrcoef(coins[0], coins[1])[0, 1]) < 0.25


def simulate(rng: np.random.Generator, relevance: Float64, noise: tuple[float, float], searches: int) -> Int64:
    """Searches by users who look at positions and click what is relevant; rankers sort by relevance with noise."""
    seen = rng.random((searches, len(SEEN))) < SEEN
    attracted = rng.random((searches, len(relevance))) < relevance
    orders = [np.argsort(-relevance - sd * rng.normal(size=(searches, len(relevance))), axis=1) for sd in noise]
    clicks = np.zeros((searches, 2), np.int64)
    for number in range(searches):
        draft = team_draft(
            orders[0][number].tolist(),
            orders[1][number].tolist(),
            request_id=f"{rng.integers(1 << 60)}",
            length=len(SEEN),
        )
        clicked = seen[number] & attracted[number][draft.documents]
        clicks[number] = np.bincount(np.array(draft.teams)[clicked], minlength=2)
    return winners(clicks[:, 0], clicks[:, 1])


def test_no_preference_gives_few_false_alarms_and_a_better_ranker_wins() -> None:
    """Rankers alike: at most about 5 % are called different, once or at any time. The better one wins nearly always."""
    rng, relevance = np.random.default_rng(3), np.linspace(0.05, 0.9, 15)
    alike = [preference(simulate(rng, relevance, (1.0, 1.0), 150), tightest=150, resamples=200) for _ in range(150)]
    assert sum(each.better != "none" for each in alike) <= 15, (
        "of 150, 7.5 are expected; more than 15 once in 250 times"
    )
    assert sum(each.decided_after is not None for each in alike) <= 15
    assert np.mean([each.interval[0] <= 0 <= each.interval[1] for each in alike]) > 0.9
    better = [preference(simulate(rng, relevance, (2.0, 0.2), 400), tightest=400, resamples=200) for _ in range(10)]
    assert [each.better for each in better] == ["second"] * 10
    assert sum(each.decided_after is not None and each.sequential_interval[0] > 0 for each in better) >= 9
    worse = preference(simulate(rng, relevance, (0.2, 2.0), 400))
    assert (worse.better, worse.interval[1] < 0) == ("first", True)


def test_the_numbers_by_hand() -> None:
    found = preference(np.repeat([1, 0, -1], [60, 20, 20]), seed=1)
    assert (found.good, found.same, found.bad, found.delta_gsb) == (60, 20, 20, 0.4)
    spread = np.sqrt((0.8 - 0.4**2) / 100)
    assert found.interval[0] == pytest.approx(0.4 - 1.96 * spread, abs=0.02)
    assert found.interval[1] == pytest.approx(0.4 + 1.96 * spread, abs=0.02)
    assert found == preference(np.repeat([1, 0, -1], [60, 20, 20]), seed=1)
    assert sign_test(0, 0) == sign_test(3, 3) == 1
    assert sign_test(5, 0) == 2 / 32
    same = preference(np.zeros(200, np.int64))
    assert (same.better, same.decided_after, same.p_value) == ("none", None, 1)
    assert by_user(np.array([1, 1, -1, -1, -1]), np.array([7, 3, 3, 3, 5])).tolist() == [1, -1, -1]
    for wrong in (np.array([], np.int64), np.array([2])):
        with pytest.raises(DataError, match="at least one search"):
            preference(wrong)
    with pytest.raises(SettingError, match="confidence must be between 0 and 1"):
        preference(np.array([1]), confidence=1)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Old alone, then old and new interleaved (new is clicked twice, old once), one search of new with another."""
    folder = tmp_path_factory.mktemp("interleaved")

    def search(number: int, day: int, teams: str, clicked: set[int]) -> list[dict[str, Any]]:
        return [
            {
                "time": f"2026-03-{day:02d}T10:{number:02d}:00Z",
                "search_id": f"s{number}",
                "query": "q",
                "document_id": f"d{place}",
                "position": place + 1,
                "click": place in clicked,
                "user_id": f"u{number % 2}",
                "ranker": {"o": "z-old", "n": "a-new", "x": "other"}[team],
            }
            for place, team in enumerate(teams)
        ]

    rows = search(0, 1, "ooo", {0}) + search(1, 2, "onno", {1, 2}) + search(2, 2, "noon", {1, 2, 3})
    rows += search(3, 2, "on", set()) + search(4, 3, "no", {0}) + search(5, 3, "xn", {0}) + search(6, 3, "xno", {0})
    ingest([write_lines(folder / "rows.jsonl", rows)], folder / "mylog")
    return folder / "mylog"


def test_searches_of_a_log(log: Path) -> None:
    store = LogStore.open(log)
    with connect(memory="200MB", threads=1) as engine:
        update_sessions(store, engine)
    found = interleaved_searches(store)
    assert (found.rankers, found.others) == (("z-old", "a-new"), 1), "the log has known z-old for longer"
    assert (found.first.tolist(), found.second.tolist()) == ([0, 2, 0, 0], [2, 1, 0, 1])
    assert found.users.tolist() == [0, 1, 0, 1]
    other = interleaved_searches(store, rankers=("a-new", "other"))
    assert (other.first.tolist(), other.second.tolist()) == ([0], [1])
    with pytest.raises(DataError, match=r"no interleaved searches of these two rankers\. Choose from: --rankers"):
        interleaved_searches(store, rankers=("a-new", "nobody"))


def test_the_command_compares_searches_or_users(log: Path, cli: Run) -> None:
    shown = cli("evaluate", "interleaving", log, "--json").json
    assert (shown["rankers"], shown["searches"], shown["other_searches"]) == (["z-old", "a-new"], 4, 1)
    assert (shown["clicks"], shown["unit"]) == ([2, 4], "search")
    found = shown["preference"]
    assert (found["good"], found["same"], found["bad"], found["delta_gsb"]) == (2, 1, 1, 0.25)
    assert (found["better"], found["sequential_interval"]) == ("none", [None, None])
    text = cli("evaluate", "interleaving", log, "--unit", "user", "--quiet").stdout
    assert "a-new wins (good)" in text
    assert "No significant difference." in text
    swapped = cli("evaluate", "interleaving", log, "--rankers", "a-new", "z-old", "--json").json
    assert swapped["preference"]["delta_gsb"] == -0.25


def test_the_command_says_why_it_cannot_compare(log: Path, cli: Run) -> None:
    told = cli("evaluate", "interleaving", log, "--rankers", "a", "a", code=2).stderr
    assert told.startswith("error: --rankers must be two different rankers")
    assert "one day" in cli("evaluate", "interleaving", log, "--days", "March", code=2).stderr
    told = cli("evaluate", "interleaving", log, "--days", "2026-03-01", code=3).stderr
    assert "has no interleaved searches. Each impression must name its ranker" in told
    told = cli("evaluate", "interleaving", log, "--rankers", "a-new", "nobody", code=3).stderr
    assert "Choose from: --rankers a-new other; --rankers a-new z-old" in told


def test_the_examples_of_the_help_run(log: Path, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log.parent)
    for line in examples(["evaluate", "interleaving"]):
        assert "a-new" in cli(*line.replace("old new", "z-old a-new").split()[1:]).stdout
