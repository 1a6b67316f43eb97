"""Requests, settings and surroundings that mean no good: each gets its status, and nobody else notices."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from clickprism.errors import SettingError
from clickprism.serve.http.app import Service
from clickprism.serve.http.server import LOGGING, check
from clickprism.serve.page.page import MOST_ENTERING
from clickprism.serve.settings import ServeSettings
from clickprism.serve.store.base import FeatureStore, Found, StoreInfo, StoreUnavailableError
from clickprism.serve.store.redis import RedisAddress
from tests.log.raw_logs import impression
from tests.serve.service_kit import TOKEN, Upload, ask, linear_bundle, publish
from tests.serve.test_service import problem, run, shadow_counts
from tests.waiting import LIMIT

FORM = {"content-type": "application/x-www-form-urlencoded"}
NDJSON = {"content-type": "application/x-ndjson"}
FIELDS = b"&".join([b"a=1"] * 9)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linear_bundle(tmp_path_factory.mktemp("models") / "bundle", [1.0, 10.0, 100.0])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(publish(tmp_path_factory.mktemp("stores") / "store", {"q": {"a": [1.0, 0, 0], "b": [3.0, 0, 0]}}))


def test_bodies_that_no_decoder_reads_are_malformed(bundle: Path, tmp_path: Path) -> None:
    async def work(service: Service) -> None:
        body = b'{"query_id":"\xff","documents":["a"]}'
        assert "not UTF-8" in problem(await ask(service, "POST", "/v1/rank", body), 400)
        for body in (b"[" * 100_000, b'[{"a":' * 50_000):
            assert "nested too deeply" in problem(await ask(service, "POST", "/v1/events", body), 400)
            assert "nested" in problem(await ask(service, "POST", "/v1/events", body, headers=NDJSON), 400)
        problem(await ask(service, "POST", "/v1/events", b" [{]", headers=NDJSON), 400)

    run(bundle, ServeSettings(log=tmp_path / "log"), work)


def test_a_form_with_many_fields_has_no_token(bundle: Path) -> None:
    async def work(service: Service) -> None:
        assert (await ask(service, "POST", "/session", FIELDS, headers=FORM)).status == 401
        assert (await ask(service, "POST", "/session", b"token=" + TOKEN.encode(), headers=FORM)).status == 303

    run(bundle, ServeSettings(), work)


def test_clients_without_a_token_cannot_use_up_the_connections_of_others(bundle: Path) -> None:
    async def work(service: Service) -> None:
        uploads = [Upload(b"t") for _ in range(30)]
        slow = [asyncio.create_task(ask(service, "POST", "/session", upload=each, headers=FORM)) for each in uploads]
        sent_away = slow[MOST_ENTERING:]
        await asyncio.gather(*sent_away, *(each.waited_for.wait() for each in uploads[:MOST_ENTERING]))
        body = {"documents": [{"id": "a", "features": [1, 2, 3]}]}
        assert (await ask(service, "POST", "/v1/rank", body)).status == 200
        for each in uploads:
            each.rest.set()
        assert [(await each).status for each in slow] == [401] * MOST_ENTERING + [503] * len(sent_away)

    run(bundle, ServeSettings(max_waiting=20, timeout=LIMIT), work)


def test_a_document_without_a_score_does_not_spoil_the_figures_of_the_shadow(
    bundle: Path, store: str, tmp_path: Path
) -> None:
    other = linear_bundle(tmp_path / "other", [-1.0, 0.0, 0.0])

    async def work(service: Service) -> None:
        for documents in (["a", "gone"], ["gone"], ["b"]):
            await ask(service, "POST", "/v1/rank", {"query_id": "q", "documents": documents})
        counts = await shadow_counts(service, requests=3)
        assert counts["mean_difference"] == pytest.approx((2 + 6) / 2)

    run(bundle, ServeSettings(store=store, shadow=other), work)


class Away:
    """A store over the network that takes its time, then fails."""

    problem: Exception | None = None

    def __init__(self) -> None:
        self.asked, self.fail = threading.Event(), threading.Event()

    @property
    def info(self) -> StoreInfo:
        self.asked.set()
        self.fail.wait(LIMIT)
        raise StoreUnavailableError("it is away")

    def get(self, query_id: str, document_ids: Any) -> Found:
        raise StoreUnavailableError("it is away")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("path", ["/v1/models", "/metrics"])
def test_a_store_that_is_away_holds_up_no_one_else(bundle: Path, store: str, path: str) -> None:
    async def work(service: Service) -> None:
        away = Away()
        there: FeatureStore = away
        service.models.store = there
        service._remote = True
        waits = asyncio.create_task(ask(service, "GET", path))
        await asyncio.to_thread(away.asked.wait, LIMIT)
        assert (await ask(service, "GET", "/healthz")).status == 200
        assert not waits.done()
        away.fail.set()
        assert (await waits).status == 200

    run(bundle, ServeSettings(store=store), work)


def test_what_only_the_challenger_needs_is_no_reason_to_refuse(bundle: Path, store: str, tmp_path: Path) -> None:
    other = linear_bundle(tmp_path / "other", [-1.0, 0.0, 0.0])

    async def work(service: Service) -> None:
        assert service.models.challenger is not None
        live = service.models.challenger.live
        assert live is not None
        live.needs_clicks = True
        body: dict[str, Any] = {"documents": [{"id": "a", "features": [1, 0, 0]}, {"id": "b", "features": [2, 0, 0]}]}
        for _ in range(2):
            told = (await ask(service, "POST", "/v1/rank", body)).json
            assert [each["id"] for each in told["items"]] == ["b", "a"]
            assert {each["ranker"] for each in told["items"]} == {told["model_version"]}
            service.models.store = Away()
            body |= {"query_id": "q"}

    run(bundle, ServeSettings(store=store, interleave=other), work)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_feature_age": 0}, "max_feature_age"),
        ({"max_feature_age": float("inf")}, "max_feature_age"),
        ({"timeout": float("inf")}, "timeout"),
    ],
)
def test_settings_that_no_worker_can_start_with_are_refused_before(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        ServeSettings(**wrong)


@pytest.mark.parametrize(
    ("token", "host", "words"),
    [("secret ", "127.0.0.1", "CLICKPRISM_TOKEN"), ("", "::1", "CLICKPRISM_TOKEN"), (None, "192.0.2.1", "no_auth")],
)
def test_a_token_that_no_header_carries_and_none_for_other_machines_are_refused(
    token: str | None, host: str, words: str, bundle: Path
) -> None:
    with pytest.raises(SettingError, match=words) as error:
        check(bundle, ServeSettings(host=host), token=token)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "url",
    ["redis://me:se/cret@db/0", "redis://me:se#cret@db/0", "redis://me:se?cret@db/0", "redis://me:se%2Fcret@db/0"],
)
def test_a_password_with_a_sign_of_addresses_is_not_shown(url: str) -> None:
    with pytest.raises(SettingError) as error:
        RedisAddress(url)
    assert "cret" not in str(error.value)
    assert str(RedisAddress("redis://me@db/0")) == "redis://db/0?prefix=clickprism"


def test_what_libraries_say_is_json_too() -> None:
    assert LOGGING["root"] == {"handlers": ["lines"], "level": "WARNING"}


def test_without_a_token_no_page_of_another_host_can_ask(bundle: Path) -> None:
    async def work(service: Service) -> None:
        for path in ("/", "/v1/models", "/openapi.json"):
            for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "[::1].evil.example"):
                problem(await ask(service, "GET", path, headers={"host": host}), 421)
            for host in ("localhost:8000", "127.0.0.1:8000", "[::1]:8000"):
                assert (await ask(service, "GET", path, headers={"host": host})).status == 200

    run(bundle, ServeSettings(), work, token=None)


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("host", ["", "localhost\nlocalhost", "localhost\nevil.example"])
def test_a_request_has_one_host(bundle: Path, host: str, token: str | None) -> None:
    async def work(service: Service) -> None:
        for path in ("/", "/v1/models", "/healthz", "/nothing"):
            detail = problem(await ask(service, "GET", path, headers={"host": host}), 400)
            assert "Host headers, not one" in detail

    run(bundle, ServeSettings(), work, token=token)


def test_compressed_bodies_are_decompressed_within_the_limit_or_refused(bundle: Path, tmp_path: Path) -> None:
    packed = {"content-encoding": "gzip"}
    rows = gzip.compress(json.dumps([impression(1)]).encode())

    async def work(service: Service) -> None:
        for encoding in ("br", "gzip, gzip", "deflate"):
            reply = await ask(service, "POST", "/v1/events", rows, headers={"content-encoding": encoding})
            problem(reply, 415)
            assert reply.headers["accept-encoding"] == "gzip"
        problem(await ask(service, "POST", "/v1/rank", rows, headers=packed), 415)
        bomb = gzip.compress(b"[" + b" " * 10_000_000 + b"]")
        assert len(bomb) < 20_000
        problem(await ask(service, "POST", "/v1/events", bomb, headers=packed), 413)
        for broken in (rows[:-4], rows + rows, b"no gzip", b""):
            assert "gzip" in problem(await ask(service, "POST", "/v1/events", broken, headers=packed), 400)
        assert (await ask(service, "POST", "/v1/events", rows, headers=packed)).status == 202
        assert (await ask(service, "POST", "/v1/events", rows, headers=packed | NDJSON)).status == 202

    run(bundle, ServeSettings(log=tmp_path / "log", max_body=20_000), work)
