"""A rollout shows a new bundle to a growing share of the requests, and promotes it or takes it back by clicks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clickprism.errors import ClickprismError, SettingError, UnsupportedError
from clickprism.log.ingest import ingest
from clickprism.log.store import LogStore
from clickprism.serve.bundle import rollout
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.deployment import Deployment
from clickprism.serve.bundle.rollout import is_interleaved
from clickprism.serve.http.app import Service
from clickprism.serve.settings import RolloutSettings, ServeSettings
from tests.conftest import Done
from tests.log.raw_logs import write_lines
from tests.serve.service_kit import ask, linear_bundle, started
from tests.waiting import until

SETTINGS = RolloutSettings(shares=(0.2, 1.0), stage_searches=100, planned_searches=400)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [linear_bundle(folder / f"b{i}", [10.0**i, 0.0, 0.0]) for i in range(3)]


@pytest.fixture(scope="module")
def released(bundles: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment with an old bundle, and a rollout of a new one."""
    made = Deployment(tmp_path_factory.mktemp("released") / "shop")
    made.promote(bundles[0])
    rollout.start(made, bundles[1], SETTINGS)
    return made.folder


@pytest.fixture
def deployment(released: Path, tmp_path: Path) -> Deployment:
    """A copy of it, for one test."""
    return Deployment(Path(shutil.copytree(released, tmp_path / "shop")))


def add_searches(
    folder: Path, deployment: Deployment, won: list[int], name: str = "a", log: Path | None = None
) -> LogStore:
    """Add interleaved searches to a log; in each, a document of the new (1), the old (-1) or no bundle is clicked."""
    now = rollout.status(deployment)
    assert now is not None
    rows: list[dict[str, Any]] = []
    for number, winner in enumerate(won):
        time = datetime.fromisoformat(now.since) + timedelta(milliseconds=number)
        common = {"time": time.isoformat(), "search_id": f"{name}{number}", "query": "q", "user_id": f"{name}{number}"}
        for place, (ranker, clicked) in enumerate(((now.version, winner > 0), (now.against, winner < 0)), start=1):
            rows.append(common | {"document_id": f"d{place}", "position": place, "click": clicked, "ranker": ranker})
    log = log or folder / "mylog"
    ingest([write_lines(folder / f"{name}.jsonl", rows)], log)
    return LogStore.open(log)


def test_users_who_prefer_the_new_bundle_promote_it(deployment: Deployment, tmp_path: Path) -> None:
    first = rollout.advance(deployment, add_searches(tmp_path, deployment, [1, 0, -1, 1]))
    assert (first.outcome, first.searches, first.wins, first.losses, first.share) == ("running", 4, 2, 1, 0.2)
    found = rollout.advance(deployment, add_searches(tmp_path, deployment, [1, 1, 0, 1, -1] * 30, "b"))
    assert (found.outcome, found.searches) == ("promoted", 154)
    assert found.interval[0] > 0
    assert deployment.pointer().version == found.version
    assert deployment.pointer().previous == (found.against,)
    assert not rollout.rollout_folder(deployment).exists()
    with pytest.raises(UnsupportedError, match=r"has no rollout\. Start one"):
        rollout.stop(deployment)


def test_users_who_prefer_the_current_bundle_take_the_new_one_back(deployment: Deployment, tmp_path: Path) -> None:
    found = rollout.advance(deployment, add_searches(tmp_path, deployment, [-1, -1, 0, -1, 1] * 30))
    assert (found.outcome, found.share) == ("taken back", 0)
    assert found.reason == "Users prefer the current bundle, after 100 searches."
    assert deployment.pointer().version == found.against
    assert not rollout.rollout_folder(deployment).exists()


def test_the_share_grows_unless_the_new_bundle_loses_and_without_a_preference_it_ends(
    deployment: Deployment, tmp_path: Path
) -> None:
    losing = rollout.advance(deployment, add_searches(tmp_path, deployment, [-1, 1, 0, 0, 0] * 20 + [-1] * 3))
    assert (losing.outcome, losing.share) == ("running", 0.2)
    assert "lost more than it won" in losing.reason
    even = rollout.advance(deployment, add_searches(tmp_path, deployment, [1] * 3 + [0] * 20, "b"))
    assert (even.share, even.stage, even.stage_began) == (1.0, 1, 126)
    assert rollout.rollout_folder(deployment).pointer().share == 1
    ended = rollout.advance(deployment, add_searches(tmp_path, deployment, [1, -1] * 150, "c"))
    assert (ended.outcome, ended.reason) == ("taken back", "No preference after 426 searches.")


def test_a_log_without_interleaved_searches_changes_nothing(deployment: Deployment, tmp_path: Path) -> None:
    rows = [{"time": "2026-03-01T00:00:00Z", "search_id": "s", "query": "q", "document_id": "d", "position": 1}]
    ingest([write_lines(tmp_path / "rows.jsonl", rows)], tmp_path / "mylog")
    before = rollout.status(deployment)
    assert rollout.advance(deployment, LogStore.open(tmp_path / "mylog")) == before


def test_a_promotion_by_hand_ends_the_rollout(deployment: Deployment, bundles: list[Path], tmp_path: Path) -> None:
    store = add_searches(tmp_path, deployment, [1])
    deployment.promote(bundles[2])
    assert "was replaced" in rollout.advance(deployment, store).reason
    assert deployment.pointer().version == Bundle.load(bundles[2]).version


def test_what_is_interrupted_ends_the_same_way(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash after the promotion and before the outcome is written: the next call writes it."""
    store = add_searches(tmp_path, deployment, [1] * 120)
    with monkeypatch.context() as patch:
        patch.setattr(rollout, "_write", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            rollout.advance(deployment, store)
    found = rollout.advance(deployment, store)
    assert found.outcome == "promoted"
    assert deployment.pointer().version == found.version


def test_wrong_use_is_refused(deployment: Deployment, bundles: list[Path]) -> None:
    with pytest.raises(ClickprismError, match="has a rollout already"):
        rollout.start(deployment, bundles[2], SETTINGS)
    rollout.stop(deployment)
    with pytest.raises(SettingError, match="bundle must differ from the current bundle"):
        rollout.start(deployment, bundles[0], SETTINGS)
    for wrong in ((), (0.5, 0.2), (0.0, 1.0), (0.5, 2.0)):
        with pytest.raises(SettingError, match="shares must be rising"):
            RolloutSettings(shares=wrong)
    (deployment.folder / "rollout.json").write_text('{"version": 1}')
    with pytest.raises(ClickprismError, match=r"rollout\.json: is damaged"):
        rollout.status(deployment)


def test_the_service_interleaves_the_share_of_the_requests_until_it_ends(deployment: Deployment) -> None:
    body = {"documents": [{"id": "a", "features": [1, 2, 3]}, {"id": "b", "features": [2, 1, 3]}]}
    ids = [f"r{number}" for number in range(40)]

    async def interleaved(service: Service) -> set[str]:
        asked = {each: await ask(service, "POST", "/v1/rank", body, headers={"x-request-id": each}) for each in ids}
        return {each for each, answer in asked.items() if answer.json.get("interleaved")}

    async def work() -> None:
        async with started(deployment.folder, ServeSettings()) as service:
            assert await interleaved(service) == {each for each in ids if is_interleaved(each, 0.2)}
            rollout.stop(deployment)
            challenger = service.models.challenger
            assert challenger is not None
            await asyncio.to_thread(until, lambda: challenger.live is None)
            assert await interleaved(service) == set()

    asyncio.run(work())


def test_the_command_starts_counts_and_stops(bundles: list[Path], tmp_path: Path, cli: Callable[..., Done]) -> None:
    made = Deployment(tmp_path / "shop")
    made.promote(bundles[0])
    assert "there was no rollout yet" in cli("model", "rollout", made.folder, code=2).stderr
    cli("model", "rollout", made.folder, "--bundle", bundles[1], "--shares", "0.5")
    add_searches(tmp_path, made, [1, -1])
    shown = cli("model", "rollout", made.folder, tmp_path / "mylog", "--json").json
    assert (shown["searches"], shown["share"]) == (2, 0.5)
    assert cli("model", "rollout", made.folder, "--json").json == shown
    assert "taken back" in cli("model", "rollout", made.folder, "--stop").stdout
