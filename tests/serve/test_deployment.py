"""A deployment holds verified copies and one pointer; workers follow it, and never answer by a mixture."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from clickprism.errors import DataError
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.deployment import Deployment
from clickprism.serve.settings import ServeSettings
from tests.serve.service_kit import ask, linear_bundle, publish, started
from tests.waiting import until, until_async


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [linear_bundle(folder / f"b{i}", [10.0**i, 0.0, 0.0]) for i in range(3)]


def version(bundle: Path) -> str:
    return Bundle.load(bundle).version


def test_promote_copies_and_rolls_back_step_by_step(bundles: list[Path], tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "shop")
    first, second, third = map(version, bundles)
    assert deployment.promote(bundles[0]).before is None
    assert deployment.promote(bundles[1]).before == first
    assert not deployment.promote(bundles[1]).changed
    deployment.promote(bundles[2])
    assert deployment.pointer().previous == (second, first)
    assert deployment.current().version == third
    assert deployment.rollback().version == second
    assert deployment.rollback().version == first
    with pytest.raises(DataError, match="no previous bundle to roll back to"):
        deployment.rollback()
    assert [each.name for each in (tmp_path / "shop" / "bundles").iterdir()] == [first]
    deployment.promote(bundles[0])
    assert deployment.pointer().version == first


def test_old_bundles_go_and_leftovers_of_a_killed_promotion_too(bundles: list[Path], tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "shop")
    deployment.promote(bundles[0])
    (tmp_path / "shop" / "bundles" / ".x.part").mkdir()
    mine = linear_bundle(tmp_path / "shop" / "bundles" / "mine", [3.0, 2.0, 1.0])
    for i in range(2 + 2):
        deployment.promote(linear_bundle(tmp_path / f"b{i}", [1.0, float(i), 0.0]), keep=2)
    Bundle.load(mine)
    assert len(list((tmp_path / "shop" / "bundles").iterdir())) == 2 + 1 + 1
    assert version(bundles[0]) not in deployment.pointer().previous


def test_broken_bundles_are_not_promoted(bundles: list[Path], tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "shop")
    deployment.promote(bundles[0])
    with pytest.raises(DataError, match=r"does not exist\. Create it with: clickprism model bundle"):
        deployment.promote(tmp_path / "none")
    broken = linear_bundle(tmp_path / "broken", [5.0, 0.0, 0.0])
    (broken / "network.onnx").write_bytes(b"x")
    with pytest.raises(DataError, match="was changed"):
        deployment.promote(broken)
    assert deployment.pointer().version == version(bundles[0])
    deployment.pointer_file.write_text('{"version": "../../etc", "since": ""}', encoding="utf-8")
    with pytest.raises(DataError, match="not a version of a bundle"):
        deployment.pointer()


def test_a_pointer_to_a_broken_bundle_leaves_the_old_one(bundles: list[Path], tmp_path: Path) -> None:
    async def work() -> None:
        deployment = Deployment(tmp_path / "shop")
        deployment.promote(bundles[0])
        async with started(deployment.folder, ServeSettings()) as service:
            good = version(bundles[0])
            (tmp_path / "shop" / "bundles" / ("0" * 16)).mkdir()
            deployment.point("0" * 16)

            async def troubled() -> Any:
                ready = (await ask(service, "GET", "/readyz")).json
                return ready if "problem" in ready else None

            ready = await until_async(troubled)
            assert (ready["status"], ready["model_version"]) == ("ready", good)
            assert str(tmp_path) not in ready["problem"], "who has no token learns no path"
            assert "not a bundle" in (await ask(service, "GET", "/v1/models")).json["problem"]
            assert "clickprism_model_problem 1.0" in (await ask(service, "GET", "/metrics")).body.decode()
            assert (
                'clickprism_model_swaps_total{outcome="failed"}'
                in (await ask(service, "GET", "/metrics")).body.decode()
            )
            body = {"documents": [{"id": "a", "features": [1, 0, 0]}]}
            assert (await ask(service, "POST", "/v1/rank", body)).json["model_version"] == good
            deployment.promote(bundles[1])

            async def recovered() -> bool:
                ready = (await ask(service, "GET", "/readyz")).json
                return ready["model_version"] == version(bundles[1]) and "problem" not in ready

            await until_async(recovered)

    asyncio.run(work())


@pytest.mark.parametrize("swaps", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_an_answer_is_of_one_model_and_one_snapshot_while_both_change(
    swaps: int, bundles: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load, the scores of each answer are those of the versions that it names."""
    monkeypatch.setattr("clickprism.serve.http.models.FOLLOW_SECONDS", 0.001)
    deployment, factors = Deployment(tmp_path / "shop"), {version(bundles[0]): 1.0, version(bundles[1]): 10.0}
    for each in bundles[:2]:
        deployment.promote(each)
    rows = {value: {"q": {f"d{j}": [value * 100 + j, 0.0, 0.0] for j in range(20)}} for value in (1.0, 2.0)}
    store = publish(tmp_path / "store", rows[1.0], version="v1")
    wanted = {"v1": 100.0, "v2": 200.0}
    done = threading.Event()
    seen: set[tuple[str, str]] = set()

    def swap(service: Any) -> None:
        names, features = list(factors), 1.0
        try:
            for i in range(swaps):
                model = names[i % 2]
                deployment.point(model)
                until(lambda wanted: service.models.current.live.version == wanted, model)
                if i % (swaps // 4 + 1) == 1:
                    features = 3.0 - features
                    publish(tmp_path / "store", rows[features], version=f"v{features:.0f}")
                    seen.clear()
                    until(lambda answer: answer in seen or done.is_set(), (f"v{features:.0f}", model))
        finally:
            done.set()

    async def load(service: Any) -> None:
        body = {"query_id": "q", "documents": [f"d{j}" for j in range(20)]}
        while not done.is_set():
            reply = await ask(service, "POST", "/v1/rank", body)
            assert reply.status == 200, reply.body
            told = reply.json
            base, factor = wanted[told["feature_version"]], factors[told["model_version"]]
            assert [(each["id"], each["score"]) for each in told["items"]] == [
                (f"d{j}", factor * (base + j)) for j in reversed(range(20))
            ]
            seen.add((told["feature_version"], told["model_version"]))
            await asyncio.sleep(0.001)

    async def work() -> None:
        settings = ServeSettings(store=str(store))
        async with started(deployment.folder, settings, request_lines=False) as service:
            try:
                await asyncio.gather(asyncio.to_thread(swap, service), *(load(service) for _ in range(4)))
            finally:
                done.set()
            assert service.metrics.value("clickprism_model_swaps_total", outcome="done") >= swaps
            assert service.metrics.value("clickprism_model_swaps_total", outcome="failed") == 0

    asyncio.run(work())
