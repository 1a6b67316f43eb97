"""Scores joined with the clicks on a pair, encoded features by name, and tokens that are rotated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.data.encoding import Encoding
from clickprism.errors import ClickprismError, DataError
from clickprism.model import Model
from clickprism.rankers.linear import Linear, LinearNetwork
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.http import request as requests
from clickprism.serve.http.app import Service
from clickprism.serve.http.request import Guard, read_tokens
from clickprism.serve.scoring.evidence import FIELDS, Evidence, fit_evidence
from clickprism.serve.settings import PublishSettings, ServeSettings
from clickprism.serve.store.publish import publish
from tests.serve.service_kit import NAMES, ask, started
from tests.serve.service_kit import publish as publish_rows
from tests.waiting import until_async

EVIDENCE = Evidence(strength=2.0, slope=1.0, level=float(np.log(0.1)))


def bundle_of(folder: Path, names: tuple[str, ...], *, weights: list[float], **more: Any) -> Path:
    import torch

    network = LinearNetwork(len(names))
    network.output.weight.data = torch.tensor([weights], dtype=torch.float32)
    network.output.bias.data.zero_()
    model = Model(Linear(), network.eval(), features=len(names), method={"name": "click"})
    write_bundle(folder, model, feature_names=names, created=datetime(2026, 3, 1, tzinfo=UTC), **more)
    return folder


def run(source: Path, settings: ServeSettings, work: Callable[[Service], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with started(source, settings) as service:
            await work(service)

    asyncio.run(whole())


def estimates(path: Path, rows: dict[tuple[str, str], tuple[int, float, int]]) -> Path:
    """Write the columns of `relevance estimate` that a store takes: clicks, exposure and impressions by pair."""
    clicked, weight, shown = zip(*rows.values(), strict=True)
    columns = {"query_id": [q for q, _ in rows], "document_id": [d for _, d in rows], "estimate": [0.1] * len(rows)}
    pq.write_table(pa.table({**columns, "weight": weight, "impressions": shown, "clicked": clicked}), path)
    return path


def test_the_strength_of_the_ranker_is_found_again() -> None:
    draw = np.random.default_rng(0)
    query = np.repeat(np.arange(300), 12)
    scores, exposure = draw.normal(size=len(query)), draw.gamma(1, 20, len(query))
    relevance = np.exp(np.log(0.1) + 0.5 * scores) * draw.gamma(3, 1 / 3, len(query))
    clicks = draw.poisson(exposure * relevance).astype(np.float64)
    found = fit_evidence(scores, clicks, exposure, query)
    assert found is not None
    assert found.slope == pytest.approx(0.5, abs=0.05)
    assert found.strength == pytest.approx(3, rel=0.35)
    assert found.level == pytest.approx(np.log(0.1), abs=0.1)
    assert fit_evidence(scores, np.zeros(len(query)), exposure, query) is None

    def distance(given: np.ndarray) -> float:
        within = [given[query == one] - given[query == one].mean() for one in range(300)]
        truth = [np.log(relevance[query == one]) - np.log(relevance[query == one]).mean() for one in range(300)]
        return float(np.mean((np.concatenate(within) - np.concatenate(truth)) ** 2))

    known = np.stack([clicks, exposure, exposure], axis=1).astype(np.float32)
    joined = np.concatenate([found.join(scores[query == one], known[query == one])[0] for one in range(300)])
    rates = np.log((clicks + 0.5) / (exposure + 0.5))
    assert distance(joined) < min(distance(found.slope * scores), distance(rates))


def test_documents_without_clicks_keep_the_order_of_the_ranker_and_nan_stays() -> None:
    joined, parts = EVIDENCE.join(np.array([1.0, 3.0, np.nan, 2.0]), np.zeros((4, 3), np.float32))
    assert np.argsort(-joined)[:3].tolist() == [1, 3, 0]
    assert np.isnan(joined[2])
    assert parts["evidence"][[0, 1, 3]].tolist() == [0, 0, 0]
    huge, _ = EVIDENCE.join(np.array([1e9, -1e9]), np.full((2, 3), 1e9, np.float32))
    assert np.isfinite(huge).all()


def test_served_scores_join_the_clicks_of_the_store_and_follow_what_is_published(tmp_path: Path) -> None:
    source = bundle_of(tmp_path / "bundle", NAMES, weights=[1.0, 0.0, 0.0], evidence=EVIDENCE)
    assert Bundle.load(source).manifest.evidence == EVIDENCE
    store = str(tmp_path / "store")
    clicks = estimates(tmp_path / "1.parquet", {("q", "a"): (40, 50.0, 100), ("q", "b"): (0, 50.0, 200)})
    assert publish(store, PublishSettings(estimates=clicks)).info.fields == FIELDS
    documents = [{"id": name, "features": [x, 0, 0]} for name, x in (("a", 0.0), ("b", 1.0), ("c", 0.5))]
    request = {"query_id": "q", "documents": documents, "explain": True}

    async def work(service: Service) -> None:
        answer = (await ask(service, "POST", "/v1/rank", request)).json
        assert [item["id"] for item in answer["items"]] == ["a", "c", "b"]
        scores = np.array([0.0, 1.0, 0.5])
        known = np.array([[40, 50, 100], [0, 50, 200], [0, 0, 0]], np.float32)
        joined, parts = EVIDENCE.join(scores, known)
        assert [item["score"] for item in answer["items"]] == pytest.approx(joined[[0, 2, 1]].tolist())
        first = answer["items"][0]["parts"]
        assert (first["clicks"], first["impressions"], first["observed"]) == (40, 100, 0.5)
        assert first["relevance"] == pytest.approx(parts["relevance"][0])
        other = (await ask(service, "POST", "/v1/rank", {**request, "query_id": "never seen"})).json
        assert [item["id"] for item in other["items"]] == ["b", "c", "a"]
        alone = (await ask(service, "POST", "/v1/rank", {"documents": documents})).json
        assert [item["score"] for item in alone["items"]] == [1, 0.5, 0]
        newer = estimates(tmp_path / "2.parquet", {("q", "b"): (0, 50.0, 100), ("q", "c"): (90, 100.0, 100)})
        publish(store, PublishSettings(estimates=newer))

        async def first_is_c() -> bool:
            return bool((await ask(service, "POST", "/v1/rank", request)).json["items"][0]["id"] == "c")

        await until_async(first_is_c)

    run(source, ServeSettings(store=store), work)


def test_a_store_without_clicks_leaves_the_scores_of_the_ranker(tmp_path: Path) -> None:
    source = bundle_of(tmp_path / "bundle", NAMES, weights=[1.0, 0.0, 0.0], evidence=EVIDENCE)
    store = publish_rows(tmp_path / "store", {"q": {"a": [1.0, 0, 0], "b": [3.0, 0, 0]}})

    async def work(service: Service) -> None:
        answer = (await ask(service, "POST", "/v1/rank", {"query_id": "q", "documents": ["a", "b"]})).json
        assert [(item["id"], item["score"]) for item in answer["items"]] == [("b", 3), ("a", 1)]

    run(source, ServeSettings(store=str(store)), work)


@pytest.mark.parametrize("values", [{"strength": 0, "slope": 1, "level": 0}, {"strength": 1}, "x", {"level": 1e9}])
def test_a_manifest_with_other_evidence_is_refused(tmp_path: Path, values: Any) -> None:
    import json

    source = bundle_of(tmp_path / "bundle", NAMES, weights=[1.0, 0.0, 0.0])
    file = source / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "evidence": values}))
    with pytest.raises(DataError, match="is not the manifest"):
        Bundle.load(source)


TABLE = pa.table({"price": [1.0, None, 3.0, 4.0], "brand": ["acme", "bolt", "acme", "bolt"]})
ENCODING = Encoding.learn(TABLE, ["price", "brand"])
WEIGHTS = (1.0, 10.0, 100.0, 1000.0)


@pytest.fixture
def encoded(tmp_path: Path) -> Path:
    """A bundle that adds up the price, 10 for a missing price, 100 for the brand acme and 1,000 for bolt."""
    return bundle_of(tmp_path / "bundle", ENCODING.names, weights=list(WEIGHTS), data={"encoding": ENCODING.plain()})


def test_features_are_encoded_as_in_training(encoded: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"price": 2.0, "brand": "acme"},
        {"price": 3, "brand": "unseen"},
        {"price": 1.0, "brand": None},
    ]
    expected = ENCODING.encode_rows(rows) @ WEIGHTS

    async def scores(service: Service, *features: Any, **more: Any) -> Any:
        documents = [{"id": str(place), "features": each} for place, each in enumerate(features)]
        reply = await ask(service, "POST", "/v1/rank", {"documents": documents, **more})
        if reply.status != 200:
            return reply.status, reply.json["detail"], reply.json.get("pointer")
        return [item["score"] for item in sorted(reply.json["items"], key=lambda item: int(item["id"]))]

    async def work(service: Service) -> None:
        (model,) = (await ask(service, "GET", "/v1/models")).json["models"]
        assert (model["inputs"], model["feature_names"]) == (["price", "brand"], list(ENCODING.names))
        assert model["data"] == {}, "without the encoding, which may be long"
        assert await scores(service, *rows) == expected.tolist()
        status, detail, pointer = await scores(service, {"price": 1.0}, {"colour": "red"})
        assert (status, pointer) == (422, "/documents/1/features")
        assert "document 1 has the feature 'colour'" in detail
        status, detail, _ = await scores(service, {"brand": [1.0]})
        assert (status, "brand" in detail) == (422, True)

    run(encoded, ServeSettings(), work)
    store = publish_rows(tmp_path / "store", {"q": {"0": [7.0, 0.0, 1.0, 0.0]}}, fields=ENCODING.names)

    async def with_store(service: Service) -> None:
        # the request says the brand, the store the price
        assert await scores(service, {"brand": "unseen"}, query_id="q") == [7.0]
        assert await scores(service, {"price": 2.0}, query_id="q") == [102.0]

    assert ENCODING.names == ("price", "price is missing", "brand=acme", "brand=bolt")
    run(encoded, ServeSettings(store=str(store)), with_store)


def test_a_text_is_refused_by_a_ranker_on_numbers(tmp_path: Path) -> None:
    source = bundle_of(tmp_path / "bundle", NAMES, weights=[1.0, 0.0, 0.0])

    async def work(service: Service) -> None:
        document = {"id": "a", "features": {"price": "cheap"}}
        reply = await ask(service, "POST", "/v1/rank", {"documents": [document]})
        assert (reply.status, reply.json["pointer"]) == (422, "/documents/0/features/price")
        assert "is a number" in reply.json["detail"]

    run(source, ServeSettings(), work)


def test_tokens_are_rotated_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "TOKEN_SECONDS", 0.0)
    source = bundle_of(tmp_path / "bundle", NAMES, weights=[1.0, 0.0, 0.0])
    file = tmp_path / "tokens"
    file.write_text("old\n")

    async def status(service: Service, token: str) -> int:
        return (await ask(service, "GET", "/v1/models", headers={"authorization": f"Bearer {token}"})).status

    async def work() -> None:
        async with started(source, ServeSettings(token_file=file), token=None) as service:
            assert [await status(service, each) for each in ("old", "new", "")] == [200, 401, 401]
            file.write_text("new\n\nold\n")
            assert [await status(service, each) for each in ("old", "new")] == [200, 200]
            file.write_text("new\n")
            assert [await status(service, each) for each in ("old", "new")] == [401, 200]
            file.write_text("")  # broken: what was valid stays valid
            assert [await status(service, each) for each in ("old", "new")] == [401, 200]
            file.unlink()
            assert [await status(service, each) for each in ("old", "new")] == [401, 200]

    asyncio.run(work())


@pytest.mark.parametrize("content", ["", "\n \n", "caf\N{LATIN SMALL LETTER E WITH ACUTE}\n"])
def test_a_file_without_usable_tokens_is_refused_at_the_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(content)
    with pytest.raises(ClickprismError, match="one token of printable ASCII"):
        read_tokens(file)
    with pytest.raises(ClickprismError, match="cannot be read"):
        Guard(file=tmp_path / "none")
