"""A bundle says which documents its ranker may reorder, and the service enforces it for every kind of ranker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.errors import SettingError
from clickprism.rankers.attention import Attention
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.bundle.bundle import Bundle, Scope
from clickprism.serve.bundle.deployment import Deployment
from clickprism.serve.bundle.examples import Example, Examples, Shown
from clickprism.serve.http.app import Service
from clickprism.serve.page.view import view_of
from clickprism.serve.scoring.batch import score_file
from clickprism.serve.settings import ServeSettings
from tests.serve.rankers import (
    CLICK_FIELDS,
    FEATURES,
    approximation,
    click_vectors,
    cross_encoder,
    network_model,
    raw_lists,
    tree_model,
)
from tests.serve.service_kit import ask, fetch, linear_bundle, publish, service, started, until_ready
from tests.waiting import until_async

PRICES = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 5.0, "e": 4.0}
"""By price alone the ranking is d e b c a."""
REASON = "The log names only documents that were shown."


def rank_all(source: Path, settings: ServeSettings, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers of one service to these requests."""

    async def whole() -> list[dict[str, Any]]:
        async with started(source, settings) as service:
            replies = [await ask(service, "POST", "/v1/rank", body) for body in bodies]
            assert [reply.status for reply in replies] == [200] * len(bodies), replies
            return [reply.json for reply in replies]

    return asyncio.run(whole())


def within(source: Path, settings: ServeSettings, work: Callable[[Service], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with started(source, settings) as service:
            await work(service)

    asyncio.run(whole())


def ids(answer: dict[str, Any]) -> str:
    return "".join(each["id"] for each in answer["items"])


def shop(documents: str = "abcde", **more: Any) -> dict[str, Any]:
    """A request with the features of these documents."""
    return {"documents": [{"id": name, "features": [PRICES[name], 0, 0]} for name in documents], **more}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[int | None, Path]:
    """The same ranker by price, without a scope (None), for a full list (0) and for the first 2 and 3 documents."""
    folder = tmp_path_factory.mktemp("models")
    scopes = {None: None, 0: Scope(), 2: Scope(2, REASON), 3: Scope(3)}
    return {
        depth: linear_bundle(folder / f"bundle-{depth}", [1.0, 10.0, 100.0], scope=scope)
        for depth, scope in scopes.items()
    }


@pytest.fixture(scope="module")
def opposite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ranker with the cheapest first, that may re-rank four documents."""
    return linear_bundle(tmp_path_factory.mktemp("models") / "opposite", [-1.0, 0.0, 0.0], scope=Scope(4))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = {"q": {name: [price, 0.0, 0.0] for name, price in PRICES.items()}}
    return str(publish(tmp_path_factory.mktemp("stores") / "store", rows))


def test_a_bundle_keeps_its_scope_and_says_it_everywhere(bundles: dict[int | None, Path], tmp_path: Path) -> None:
    bundle = Bundle.load(bundles[2])
    assert bundle.manifest.scope == Scope(2, REASON)
    sentence = Scope(2, REASON).sentence()
    assert sentence == (
        "Re-rank only the first 2 documents in the engine's order; the others keep their order below them. " + REASON
    )
    assert sentence in bundle.read("MODEL_CARD.md").decode()
    assert ["scope", sentence] in bundle.tables()[0].rows
    deployment = Deployment(tmp_path / "shop")
    deployment.promote(bundles[2])
    assert deployment.status().bundle.manifest.scope == Scope(2, REASON)
    assert ["scope", sentence] in deployment.status().tables()[0].rows
    full = Bundle.load(bundles[0])
    assert full.manifest.scope == Scope()
    assert "Rank a full candidate list." in full.read("MODEL_CARD.md").decode()


def test_a_bundle_without_a_scope_has_none_in_its_manifest(bundles: dict[int | None, Path]) -> None:
    bundle = Bundle.load(bundles[None])
    assert bundle.manifest.scope is None
    assert "candidate list" not in bundle.read("MODEL_CARD.md").decode()
    assert "scope" not in [row[0] for row in bundle.tables()[0].rows]


def test_a_null_scope_is_none(bundles: dict[int | None, Path]) -> None:
    from clickprism.serve.bundle.bundle import read_manifest

    file = bundles[None] / "manifest.json"
    values = json.loads(file.read_text()) | {"scope": None}
    assert read_manifest(json.dumps(values).encode(), file).scope is None
    assert read_manifest(json.dumps(values | {"scope": {}}).encode(), file).scope == Scope()


@pytest.mark.parametrize("depth", [0, -1, 1_000_001, True, 2.0, "2"])
def test_a_depth_that_is_none_is_refused(depth: Any) -> None:
    with pytest.raises(SettingError, match="rerank_depth must be a whole number from 1 to 1,000,000"):
        Scope(depth)


@pytest.mark.parametrize("reason", [3, None, "two\nlines", "\x1b[31mred", "x" * 1001])
def test_a_reason_is_one_line_of_text(reason: Any) -> None:
    with pytest.raises(SettingError, match=r"reason must be (text|one line)"):
        Scope(5, reason)


def test_only_the_first_documents_of_a_request_are_reranked(bundles: dict[int | None, Path]) -> None:
    whole, other, exact, fewer = rank_all(
        bundles[3], ServeSettings(), shop(explain=True), shop("edcba"), shop("abc"), shop("a")
    )
    assert [(each["id"], each["score"]) for each in whole["items"]] == [
        ("b", 3.0),
        ("c", 2.0),
        ("a", 1.0),
        ("d", 5.0),
        ("e", 4.0),
    ]
    assert [each["parts"]["relevance"] for each in whole["items"]] == [3.0, 2.0, 1.0, 5.0, 4.0]
    assert whole["reranked"] == 3
    assert (ids(other), other["reranked"]) == ("decba", 3)
    assert (ids(exact), "reranked" in exact) == ("bca", False)
    assert (ids(fewer), "reranked" in fewer) == ("a", False)


def test_top_cuts_after_reranking(bundles: dict[int | None, Path]) -> None:
    two, four = rank_all(bundles[3], ServeSettings(), shop(top=2), shop(top=4))
    assert (ids(two), two["reranked"]) == ("bc", 3)
    assert (ids(four), four["reranked"]) == ("bcad", 3)


@pytest.mark.parametrize(
    ("scope", "setting", "ranking", "reranked"),
    [
        (None, None, "debca", None),
        (0, None, "debca", None),
        (2, None, "bacde", 2),
        (2, 0, "debca", None),
        (2, 4, "dbcae", 4),
        (0, 1, "abcde", 1),
        (None, 3, "bcade", 3),
        (3, 5, "debca", None),
        (3, 100, "debca", None),
    ],
)
def test_the_setting_overrides_the_scope(
    bundles: dict[int | None, Path], scope: int | None, setting: int | None, ranking: str, reranked: int | None
) -> None:
    (answer,) = rank_all(bundles[scope], ServeSettings(rerank_depth=setting), shop())
    assert (ids(answer), answer.get("reranked")) == (ranking, reranked)


def test_the_store_and_its_short_path_give_the_same_ranking(bundles: dict[int | None, Path], tmp_path: Path) -> None:
    """Small networks rank whole lists of ids in compiled code; a depth must not change what they score."""
    draw = np.random.default_rng(5)
    rows = {f"d{i}": draw.integers(0, 9, 3).astype(float).tolist() for i in range(300)}
    settings = ServeSettings(store=str(publish(tmp_path / "store", {"q": rows})))
    for count in (4, 40, 300):
        documents = draw.permutation(list(rows)).tolist()[:count]
        body = {"query_id": "q", "documents": documents}
        short, long = rank_all(bundles[3], settings, body, {**body, "explain": True})
        (free,) = rank_all(bundles[None], settings, body)
        order = [each["id"] for each in short["items"]]
        scores = {each["id"]: each["score"] for each in free["items"]}
        assert order == [each["id"] for each in long["items"]]
        assert order == [*sorted(documents[:3], key=lambda name: -scores[name]), *documents[3:]]
        assert {each["id"]: each["score"] for each in short["items"]} == scores
        assert short["reranked"] == long["reranked"] == 3


def test_documents_without_a_score_stay_on_their_side_of_the_depth(bundles: dict[int | None, Path], store: str) -> None:
    body = {"query_id": "q", "documents": ["lost", "a", "b", "gone", "d"]}
    (answer,) = rank_all(bundles[3], ServeSettings(store=store), body)
    assert [each["id"] for each in answer["items"]] == ["b", "a", "lost", "gone", "d"]
    assert [each["score"] for each in answer["items"]] == [3.0, 1.0, None, None, 5.0]
    assert answer["not_found"] == ["lost", "gone"]


def test_a_document_twice_counts_twice(bundles: dict[int | None, Path], store: str) -> None:
    body = {"query_id": "q", "documents": ["a", "a", "b", "b", "a"]}
    (answer,) = rank_all(bundles[3], ServeSettings(store=store), body)
    assert ids(answer) == "baaba"


KINDS = ["linear", "mlp", "large mlp", "attention", "lambdamart", "approximation", "cross-encoder"]


def ranker(kind: str, folder: Path) -> Any:
    made: dict[str, Callable[[], Any]] = {
        "linear": lambda: network_model(Linear()),
        "mlp": lambda: network_model(MLP(hidden=(4,))),
        "large mlp": lambda: network_model(MLP(hidden=(4,), activation="tanh")),
        "attention": lambda: network_model(Attention(width=8, heads=2)),
        "lambdamart": tree_model,
        "approximation": approximation,
        "cross-encoder": lambda: cross_encoder(folder / "language"),
    }
    return made[kind]()


def request_for(kind: str, folder: Path) -> tuple[dict[str, Any], ServeSettings]:
    """A request of nine documents, and where their click vectors are."""
    names = [f"d{place}" for place in range(9)]
    if kind == "approximation":
        x = np.nan_to_num(click_vectors(9, seed=2))
        rows = {"q": {name: row.tolist() for name, row in zip(names, x, strict=True)}}
        place = publish(folder / "store", rows, fields=CLICK_FIELDS)
        return {"query_id": "q", "documents": names}, ServeSettings(store=str(place))
    if kind == "cross-encoder":
        words = ["red shoes", "blue hat", "green", "old shoes", "new hat", "red hat", "shoes", "the hat", "a red one"]
        texts = [{"id": name, "text": text} for name, text in zip(names, words, strict=True)]
        return {"query": "red hat", "documents": texts}, ServeSettings()
    features = raw_lists(1, 9, seed=3, missing=False).features
    rows_given = [{"id": name, "features": row.tolist()} for name, row in zip(names, features, strict=True)]
    return {"documents": rows_given}, ServeSettings()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_ranker_is_limited(kind: str, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", ranker(kind, tmp_path), scope=Scope(4, REASON))
    body, settings = request_for(kind, tmp_path)
    (limited,) = rank_all(bundle.folder, settings, body)
    (free,) = rank_all(bundle.folder, replace(settings, rerank_depth=0), body)
    scores = {each["id"]: each["score"] for each in free["items"]}
    assert len(set(scores.values())) > 1, "scores that are all equal show nothing"
    assert "reranked" not in free
    names = [f"d{place}" for place in range(9)]
    wanted = [*sorted(names[:4], key=lambda name: -scores[name]), *names[4:]]
    assert [each["id"] for each in limited["items"]] == wanted
    assert [each["id"] for each in free["items"]] != wanted, "the limit must matter here"
    assert {each["id"]: each["score"] for each in limited["items"]} == scores
    assert limited["reranked"] == 4


def test_scoring_files_is_never_limited(tmp_path: Path) -> None:
    model, rows = network_model(MLP(hidden=(4,))), raw_lists(1, 9, missing=False).features
    names = [f"feature_{place}" for place in range(1, FEATURES + 1)]
    lines = ["query_id,document_id," + ",".join(names)]
    lines += [f"q,d{place}," + ",".join(map(str, row)) for place, row in enumerate(rows.tolist())]
    (tmp_path / "documents.csv").write_text("\n".join(lines) + "\n")
    for name, scope in (("free", None), ("limited", Scope(1))):
        bundle = write_bundle(tmp_path / name, model, scope=scope)
        score_file(bundle, tmp_path / "documents.csv", tmp_path / f"{name}.csv")
    assert (tmp_path / "free.csv").read_text() == (tmp_path / "limited.csv").read_text()


def test_two_interleaved_rankers_each_keep_their_depth(
    bundles: dict[int | None, Path], opposite: Path, store: str
) -> None:
    """One ranks b a | c d e, the other a c b d | e: the last document of both is last, whoever drafts first."""

    async def work(service: Service) -> None:
        ours, theirs = (each["version"] for each in (await ask(service, "GET", "/v1/models")).json["models"])
        rankings = {ours: "bacde", theirs: "acbde"}
        first = set()
        for number in range(20):
            header = {"x-request-id": f"r{number}"}
            body = {"query_id": "q", "documents": list(PRICES)}
            answer = (await ask(service, "POST", "/v1/rank", body, headers=header)).json
            left = {version: list(ranking) for version, ranking in rankings.items()}
            for item in answer["items"]:
                assert item["id"] == left[item["ranker"]][0], "each adds its best document that is left"
                assert item["score"] == PRICES[item["id"]] * (1 if item["ranker"] == ours else -1)
                for each in left.values():
                    each.remove(item["id"])
            assert (ids(answer)[-1], answer["reranked"]) == ("e", 4)
            first.add(answer["items"][0]["ranker"])
        assert first == {ours, theirs}

    within(bundles[2], ServeSettings(store=store, interleave=opposite), work)


def test_interleaving_says_reranked_only_where_both_are_limited(
    bundles: dict[int | None, Path], opposite: Path, store: str, tmp_path: Path
) -> None:
    body = {"query_id": "q", "documents": list(PRICES)}
    (one_free,) = rank_all(bundles[None], ServeSettings(store=store, interleave=opposite), body)
    assert "reranked" not in one_free
    (both,) = rank_all(bundles[None], ServeSettings(store=store, interleave=opposite, rerank_depth=2), body)
    assert both["reranked"] == 2
    assert ids(both)[2:] == "cde"
    unable = linear_bundle(tmp_path / "unable", [1.0, 2.0, 3.0, 4.0], scope=Scope(4))
    (alone,) = rank_all(bundles[2], ServeSettings(interleave=unable), shop())
    assert (ids(alone), alone["reranked"]) == ("bacde", 2)


def test_the_shadow_is_compared_at_its_own_depth(bundles: dict[int | None, Path], store: str) -> None:
    """Answered: b a | c d e. The shadow re-ranks three, b c a | d e: the same first document, one pair swapped."""

    async def work(service: Service) -> None:
        body = {"query_id": "q", "documents": list(PRICES)}
        await ask(service, "POST", "/v1/rank", body)

        async def counted() -> Any:
            counts = (await ask(service, "GET", "/v1/shadow")).json
            return counts if counts["requests"] else None

        counts = await until_async(counted)
        assert (counts["top_differs"], counts["order_differs"]) == (0, 1)
        assert counts["mean_tau"] == pytest.approx(1 - 2 * 1 / 10)
        assert counts["mean_difference"] == 0.0

    within(bundles[2], ServeSettings(store=store, shadow=bundles[3]), work)


def test_a_promoted_bundle_brings_its_own_depth(bundles: dict[int | None, Path], tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "shop")
    deployment.promote(bundles[2])

    async def work(service: Service) -> None:
        assert ids((await ask(service, "POST", "/v1/rank", shop())).json) == "bacde"
        assert (await ask(service, "GET", "/v1/models")).json["models"][0]["rerank_depth"] == 2
        version = deployment.promote(bundles[None]).version

        async def followed() -> bool:
            return bool((await ask(service, "GET", "/readyz")).json["model_version"] == version)

        await until_async(followed)
        answer = (await ask(service, "POST", "/v1/rank", shop())).json
        assert (ids(answer), "reranked" in answer) == ("debca", False)
        assert "rerank_depth" not in (await ask(service, "GET", "/v1/models")).json["models"][0]

    within(deployment.folder, ServeSettings(), work)


def test_the_openapi_document_describes_the_depth(bundles: dict[int | None, Path]) -> None:
    async def work(service: Service) -> None:
        schemas = (await ask(service, "GET", "/openapi.json")).json["components"]["schemas"]
        answer = schemas["RankAnswer"]
        assert answer["properties"]["reranked"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
        assert "reranked" not in answer["required"]

    within(bundles[2], ServeSettings(), work)


def test_the_page_shows_the_ranking_that_is_served(tmp_path: Path) -> None:
    documents = [Shown(name, 1.0 + i, 10, i, 0.5, debiased=float(i), naive=float(-i)) for i, name in enumerate("abc")]
    view = view_of(Example("q", documents), rerank_depth=2)
    assert [row.id for row in view.debiased] == ["b", "a", "c"]
    assert [row.moved for row in view.rows] == [-1, 1, 0]
    assert [row.id for row in view.naive] == ["a", "b", "c"]
    examples = Examples([Example("q", documents, "red shoes")], [1.0, 0.5], "simulated users")
    bundle = linear_bundle(tmp_path / "b", [1.0, 0.0, 0.0], examples=examples.bytes(), scope=Scope(2, "<b>Few</b>"))

    async def page(settings: ServeSettings) -> str:
        call = {"type": "http", "method": "GET", "path": "/", "query_string": b"q=red+shoes"}
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        async with started(bundle, settings, token=None) as service:
            await service({**call, "headers": [(b"host", b"localhost")]}, receive, send)
        return b"".join(each.get("body", b"") for each in sent[1:]).decode()

    limited, free = (asyncio.run(page(settings)) for settings in (ServeSettings(), ServeSettings(rerank_depth=0)))
    assert "what is served; re-ranks only the first 2; bars: its score" in limited
    assert "Re-rank only the first 2 documents in the engine&#39;s order" in limited
    assert "&lt;b&gt;Few&lt;/b&gt;" in limited
    assert "<b>Few" not in limited
    assert "what is served; bars: its score" in free
    assert "all documents of a request (--rerank-depth)" in free


def test_the_command_takes_the_depth_and_says_it(bundles: dict[int | None, Path]) -> None:
    with service(bundles[2], "--rerank-depth", "3") as (shown, _):
        assert shown["rerank_depth"] == 3
        until_ready(shown["address"])
        answer = fetch(f"{shown['address']}/v1/rank", shop()).json
        assert (ids(answer), answer["reranked"]) == ("bcade", 3)
    with pytest.raises(SettingError, match="rerank_depth must be at least 0, got -1"):
        ServeSettings(rerank_depth=-1)
