"""What the service answers: rankings by features, by ids with a store, explained, and errors that say what is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.rankers.mlp import MLP
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.http.app import Service
from clickprism.serve.http.server import check
from clickprism.serve.scoring.features import FeatureScorer
from clickprism.serve.scoring.scorer import Candidates, Scored
from clickprism.serve.settings import ServeSettings
from clickprism.types import Lists
from tests.log.raw_logs import impression, stored
from tests.serve.rankers import network_model
from tests.serve.service_kit import NAMES, TOKEN, Reply, Upload, ask, linear_bundle, publish, started
from tests.waiting import LIMIT, until_async

ROWS = {"q": {"a": [1.0, 0, 0], "b": [3.0, 0, 0], "c": [2.0, 0, 0]}}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linear_bundle(tmp_path_factory.mktemp("models") / "bundle", [1.0, 10.0, 100.0], metrics={"nDCG@10": 0.5})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(publish(tmp_path_factory.mktemp("stores") / "store", ROWS))


def run(
    source: Path, settings: ServeSettings, work: Callable[[Service], Awaitable[None]], *, token: str | None = TOKEN
) -> None:
    async def whole() -> None:
        async with started(source, settings, token=token) as service:
            await work(service)

    asyncio.run(whole())


def one(source: Path, settings: ServeSettings, *request: Any, **more: Any) -> Reply:
    replies = []

    async def work(service: Service) -> None:
        replies.append(await ask(service, *request, **more))

    run(source, settings, work)
    return replies[0]


async def shadow_counts(service: Service, *, requests: int) -> Any:
    """What the shadow counted, once it has scored so many requests."""

    async def counted() -> Any:
        counts = (await ask(service, "GET", "/v1/shadow")).json
        return counts if counts["requests"] >= requests else None

    return await until_async(counted)


def problem(reply: Reply, status: int, *, pointer: str | None = None) -> str:
    assert reply.status == status
    assert reply.headers["content-type"] == "application/problem+json"
    told = reply.json
    assert told["status"] == status
    assert told["title"]
    assert told["request_id"] == reply.headers["x-request-id"]
    assert told.get("pointer") == pointer
    detail: str = told["detail"]
    return detail


def test_ranks_by_the_features_of_the_request(bundle: Path) -> None:
    documents = [
        {"id": "a", "features": [1, 0, 0]},
        {"id": "b", "features": [0, 1, 0]},
        {"id": "c", "features": [2, 0, 0]},
    ]
    reply = one(bundle, ServeSettings(), "POST", "/v1/rank", {"documents": documents, "explain": True})
    assert reply.status == 200
    told = reply.json
    assert [(each["id"], each["score"]) for each in told["items"]] == [("b", 10.0), ("c", 2.0), ("a", 1.0)]
    assert told["items"][0]["parts"] == {"relevance": 10.0}
    assert told["request_id"] == reply.headers["x-request-id"]
    assert told["took_ms"] > 0
    assert "feature_version" not in told


def test_features_may_come_in_another_order_by_name(bundle: Path) -> None:
    body = {"documents": [{"id": "a", "features": {"clicks": 1, "price": 2, "age": 3}}]}
    assert one(bundle, ServeSettings(), "POST", "/v1/rank", body).json["items"][0]["score"] == 132.0


def test_ranks_by_ids_from_the_store_and_says_how_old_it_is(bundle: Path, store: str) -> None:
    async def work(service: Service) -> None:
        body = {"query_id": "q", "documents": ["a", "b", "c"], "top": 2}
        told = (await ask(service, "POST", "/v1/rank", body, headers={"x-request-id": "mine"})).json
        assert [(each["id"], each["score"]) for each in told["items"]] == [("b", 3.0), ("c", 2.0)]
        assert (told["request_id"], told["feature_version"], told["feature_as_of"]) == (
            "mine",
            "v1",
            "2026-03-01T00:00:00Z",
        )
        age = (datetime.now(UTC) - datetime(2026, 3, 1, tzinfo=UTC)).total_seconds()
        assert told["feature_age"] == pytest.approx(age, abs=LIMIT)
        assert told["stale"] is True
        mixed = {"query_id": "q", "documents": ["a", {"id": "new", "features": [0, 0, 1]}, "lost", {"id": "c"}]}
        told = (await ask(service, "POST", "/v1/rank", mixed)).json
        assert [(each["id"], each["score"]) for each in told["items"]] == [
            ("new", 100),
            ("c", 2),
            ("a", 1),
            ("lost", None),
        ]
        assert told["not_found"] == ["new", "lost"]
        models = (await ask(service, "GET", "/v1/models")).json
        assert models["store"]["pairs"] == 3
        assert models["models"][0]["metrics"] == {"nDCG@10": 0.5}
        assert models["models"][0]["feature_names"] == list(NAMES)
        text = (await ask(service, "GET", "/metrics")).body.decode()
        assert 'clickprism_requests_total{route="rank",status="200"} 2.0' in text
        assert "clickprism_documents_total 7.0" in text
        assert "clickprism_documents_not_found_total 2.0" in text
        assert "clickprism_stale_requests_total 2.0" in text

    run(bundle, ServeSettings(store=store, max_feature_age=60), work)


BROKEN: list[tuple[Any, int, str | None, str]] = [
    (b"{", 400, None, "not JSON"),
    (b"\xff\xfe", 400, None, "not JSON"),
    (b"", 400, None, "not JSON"),
    (b"[" * 100_000, 422, "", "expected `object`"),
    ({"documents": []}, 422, "/documents", "length >= 1"),
    ({"documents": ["a", 4]}, 422, "/documents/1", "got `int`"),
    ({"documents": ["a"], "colour": 1}, 422, "/colour", "unknown field"),
    ({"documents": ["a"], "top": 0}, 422, "/top", ">= 1"),
    ({"documents": ["a"]}, 422, "/documents/0", "needs features"),
    ({"documents": [{"id": "a", "features": [1, 2]}]}, 422, "/documents/0/features", "expected 3 features, got 2"),
    ({"documents": [{"id": "a", "features": [1, 2, 1e300]}]}, 422, "/documents/0/features/2", "<= 1000000000000000"),
    ({"documents": [{"id": "a", "features": [1, 2, None]}]}, 422, "/documents", "'clicks'"),
    ({"documents": ["a"] * 11}, 413, "/documents", "11 documents"),
]


def test_broken_requests_say_what_is_wrong_and_where(bundle: Path) -> None:
    async def work(service: Service) -> None:
        for body, status, pointer, words in BROKEN:
            assert words in problem(await ask(service, "POST", "/v1/rank", body), status, pointer=pointer)

    run(bundle, ServeSettings(max_documents=10), work)


def test_who_may_ask_what_and_how(bundle: Path) -> None:
    async def work(service: Service) -> None:
        for given in ("", "Bearer wrong", f"Basic {TOKEN}", TOKEN):
            reply = await ask(service, "POST", "/v1/rank", {}, headers={"authorization": given})
            problem(reply, 401)
            assert reply.headers["www-authenticate"].startswith("Bearer")
            assert reply.headers["connection"] == "close"
        problem(await ask(service, "GET", "/v1/none"), 404)
        reply = await ask(service, "GET", "/v1/rank")
        problem(reply, 405)
        assert reply.headers["allow"] == "POST"
        problem(await ask(service, "POST", "/v1/rank", {}, headers={"content-type": "text/plain"}), 415)
        problem(await ask(service, "POST", "/v1/events", {}), 404)
        problem(await ask(service, "GET", "/v1/shadow"), 404)
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert (await ask(service, "GET", path, headers={"authorization": ""})).status == 200
        assert (await ask(service, "GET", "/")).headers["content-security-policy"].startswith("default-src 'none'")

    run(bundle, ServeSettings(), work)


def test_bodies_that_are_too_long_or_too_slow_are_cut(bundle: Path) -> None:
    async def work(service: Service) -> None:
        long = await ask(service, "POST", "/v1/rank", b"x" * 2000, headers={"content-length": "2000"})
        assert "1,000 bytes" in problem(long, 413)
        assert long.headers["connection"] == "close"
        chunked = await ask(service, "POST", "/v1/rank", upload=Upload(*[b"x" * 400] * 100))
        problem(chunked, 413)
        assert chunked.headers["connection"] == "close"
        slow = await ask(service, "POST", "/v1/rank", upload=Upload(b"{"))
        problem(slow, 408)
        assert slow.headers["connection"] == "close"

    run(bundle, ServeSettings(max_body=1000, timeout=0.05), work)


def test_request_lines_are_json_and_hold_no_query(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = {"query_id": "secret-id", "query": "secret words", "documents": [{"id": "a", "features": [1, 2, 3]}]}
    one(bundle, ServeSettings(), "POST", "/v1/rank", body)
    quiet = capfd.readouterr().err
    line = json.loads(quiet.splitlines()[-1])
    assert (line["path"], line["status"], line["documents"]) == ("/v1/rank", 200, 1)
    assert "secret" not in quiet
    assert TOKEN not in quiet


def test_more_than_may_wait_are_sent_away(bundle: Path) -> None:
    async def work(service: Service) -> None:
        upload = Upload(b"{")
        first = asyncio.create_task(ask(service, "POST", "/v1/rank", upload=upload))
        await upload.waited_for.wait()
        reply = await ask(service, "GET", "/v1/models")
        problem(reply, 503)
        assert reply.headers["retry-after"] == "1"
        upload.rest.set()
        assert "not JSON" in problem(await first, 400)
        assert (await ask(service, "GET", "/v1/models")).status == 200

    run(bundle, ServeSettings(max_waiting=1, timeout=LIMIT), work)


def test_an_error_of_the_service_is_a_problem_too(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def work(service: Service) -> None:
        service.metrics.documents = None  # type: ignore[assignment]
        reply = await ask(service, "POST", "/v1/rank", {"documents": [{"id": "a", "features": [1, 2, 3]}]})
        assert "AttributeError" not in problem(reply, 500)

    run(bundle, ServeSettings(), work)
    assert "AttributeError" in capfd.readouterr().err


def test_what_cannot_be_served_is_refused_before_a_process_starts(tmp_path: Path, bundle: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist\. Create it with: clickprism model bundle"):
        check(tmp_path / "none", ServeSettings(), token=TOKEN)
    assert check(bundle, ServeSettings(), token=TOKEN).manifest.kind == "linear"


def test_two_models_are_interleaved_by_the_request_id(bundle: Path, store: str, tmp_path: Path) -> None:
    other = linear_bundle(tmp_path / "other", [-1.0, 0.0, 0.0])

    async def work(service: Service) -> None:
        ours, theirs = (each["version"] for each in (await ask(service, "GET", "/v1/models")).json["models"])
        body = {"query_id": "q", "documents": ["a", "b", "c"]}
        first = set()
        for number in range(20):
            header = {"x-request-id": f"r{number}"}
            told = (await ask(service, "POST", "/v1/rank", body, headers=header)).json
            again = (await ask(service, "POST", "/v1/rank", {**body, "top": 2}, headers=header)).json
            assert told["interleaved"] == [ours, theirs]
            assert told["items"][:2] == again["items"]
            assert {each["id"] for each in told["items"]} == {"a", "b", "c"}
            drafted = {(each["id"], each["score"], each["ranker"]) for each in told["items"][:2]}
            assert drafted == {("b", 3.0, ours), ("a", -1.0, theirs)}
            first.add(told["items"][0]["ranker"])
        assert first == {ours, theirs}

    run(bundle, ServeSettings(store=store, interleave=other), work)


def test_a_shadow_counts_where_it_would_have_disagreed(bundle: Path, store: str, tmp_path: Path) -> None:
    other = linear_bundle(tmp_path / "other", [-1.0, 0.0, 0.0])

    async def work(service: Service) -> None:
        for documents in (["a", "b", "c"], ["b"], ["b", "c"]):
            await ask(service, "POST", "/v1/rank", {"query_id": "q", "documents": documents})
        counts = await shadow_counts(service, requests=3)
        assert (counts["requests"], counts["dropped"], counts["failed"]) == (3, 0, 0)
        assert (counts["top_differs"], counts["order_differs"], counts["mean_tau"]) == (2, 2, -1.0)
        assert counts["mean_difference"] == pytest.approx((4 + 6 + 5) / 3)
        assert (
            'clickprism_shadow_disagreements_total{what="top"} 2.0'
            in (await ask(service, "GET", "/metrics")).body.decode()
        )

    run(bundle, ServeSettings(store=store, shadow=other), work)


def test_events_go_into_the_log_once(bundle: Path, tmp_path: Path) -> None:
    rows = [impression(1), {**impression(2), "time": "never"}]

    async def work(service: Service) -> None:
        header = {"idempotency-key": "batch-1"}
        first = await ask(service, "POST", "/v1/events", rows, headers=header)
        assert first.status == 202, first.body
        assert (first.json["key"], first.json["rows"]) == ("batch-1", 2)
        again = await ask(service, "POST", "/v1/events", rows, headers=header)
        assert again.json["rows"] == first.json["rows"]
        assert "idempotency key" in problem(await ask(service, "POST", "/v1/events", rows[:1], headers=header), 409)
        problem(await ask(service, "POST", "/v1/events", rows, headers={"idempotency-key": "a b"}), 422)
        problem(await ask(service, "POST", "/v1/events", []), 422, pointer="")
        problem(await ask(service, "POST", "/v1/events", {}), 422, pointer="")
        problem(await ask(service, "POST", "/v1/events", b"[{]"), 400)

    run(bundle, ServeSettings(log=tmp_path / "log"), work)
    assert len(stored(tmp_path / "log")) == 1


def test_a_store_without_the_features_is_named(bundle: Path, tmp_path: Path) -> None:
    """Such as one to which only estimates were published."""
    store = publish(tmp_path / "store", {"q": {"a": [1.0, 2.0]}}, fields=("price", "clicks"))

    async def work(service: Service) -> None:
        reply = await ask(service, "POST", "/v1/rank", {"query_id": "q", "documents": ["a"]})
        assert (reply.status, reply.json["pointer"]) == (422, "/documents/0")
        assert reply.json["detail"].startswith("the store lacks the feature 'age' that the model needs (store publish")

    run(bundle, ServeSettings(store=str(store)), work)


def test_a_newer_store_that_cannot_be_read_is_named_and_the_old_one_stays(bundle: Path, tmp_path: Path) -> None:
    place = publish(tmp_path / "store", ROWS)

    async def work(service: Service) -> None:
        (place / "current").write_text("../elsewhere")

        async def named() -> bool:
            found = (await ask(service, "GET", "/v1/models")).json["store"]
            assert found["version"] == "v1"
            return "the newest version cannot be used" in found.get("problem", "")

        await until_async(named)
        publish(place, ROWS, version="v2")

        async def followed() -> bool:
            found = (await ask(service, "GET", "/v1/models")).json["store"]
            return (found["version"], "problem" in found) == ("v2", False)

        await until_async(followed)

    run(bundle, ServeSettings(store=str(place)), work)


def test_scores_of_stored_rows_are_computed_once(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = publish(tmp_path / "store", ROWS)
    computed: list[int] = []
    score = FeatureScorer.score

    def counted(scorer: FeatureScorer, candidates: Candidates, *, explain: bool = False) -> Scored:
        computed.append(len(candidates))
        return score(scorer, candidates, explain=explain)

    async def work(service: Service) -> None:
        async def ranked(documents: list[Any], **more: Any) -> list[tuple[str, float]]:
            body = {"query_id": "q", "documents": documents, **more}
            items = (await ask(service, "POST", "/v1/rank", body)).json["items"]
            return [(each["id"], each["score"]) for each in items]

        monkeypatch.setattr(FeatureScorer, "score", counted)
        assert await ranked(["a", "b", "c"]) == [("b", 3.0), ("c", 2.0), ("a", 1.0)]
        assert await ranked(["c", "a"]) == [("c", 2.0), ("a", 1.0)]
        assert computed == [3]
        assert await ranked(["a", {"id": "b", "features": {"age": 1}}]) == [("b", 13.0), ("a", 1.0)]
        assert await ranked(["a", "b"], explain=True) == [("b", 3.0), ("a", 1.0)]
        assert computed == [3, 2, 2]
        publish(place, {"q": {"a": [9.0, 0, 0], "b": [3.0, 0, 0]}}, version="v2")

        async def followed() -> bool:
            return await ranked(["a", "b"]) == [("a", 9.0), ("b", 3.0)]

        await until_async(followed)

    run(bundle, ServeSettings(store=str(place)), work)


def test_features_may_come_by_name(bundle: Path, store: str) -> None:
    async def work(service: Service) -> None:
        body: dict[str, Any] = {"documents": [{"id": "x", "features": {"clicks": 1, "price": 2, "age": 3}}]}
        assert (await ask(service, "POST", "/v1/rank", body)).json["items"][0]["score"] == 132.0
        body = {"query_id": "q", "documents": [{"id": "a", "features": {"age": 1}}, "b", {"id": "c", "features": {}}]}
        told = (await ask(service, "POST", "/v1/rank", body)).json
        assert [(each["id"], each["score"]) for each in told["items"]] == [("a", 11.0), ("b", 3.0), ("c", 2.0)]
        for name, pointer in (("colour", "colour"), ("a/b~", "a~1b~0")):
            body = {"documents": [{"id": "x", "features": {"price": 1, name: 2}}]}
            detail = problem(
                await ask(service, "POST", "/v1/rank", body), 422, pointer=f"/documents/0/features/{pointer}"
            )
            assert detail == f"the model has no feature {name!r}; it takes price, age, clicks"
        body = {"documents": [{"id": "x", "features": {"price": 1}}]}
        detail = problem(await ask(service, "POST", "/v1/rank", body), 422, pointer="/documents")
        assert "it has no finite value of 'age', 'clicks'" in detail

    run(bundle, ServeSettings(store=store), work)


def test_features_that_are_not_given_are_filled_as_in_training(tmp_path: Path) -> None:
    model = network_model(MLP(hidden=(4,)))
    source = write_bundle(tmp_path / "bundle", model).folder
    given = {"feature_1": 3.0, "feature_6": 2.0}
    row = np.full((1, model.features), np.nan, np.float32)
    row[0, [0, 5]] = 3.0, 2.0
    body = {"documents": [{"id": "a", "features": given}, {"id": "b", "features": {**given, "feature_2": None}}]}
    items = one(source, ServeSettings(), "POST", "/v1/rank", body).json["items"]
    wanted = model.score(Lists(row, np.array([0, 1]), np.array(["q"])))[0]
    assert [each["score"] for each in items] == pytest.approx([wanted, wanted], abs=1e-5)
