"""Requests of one moment share a call of the network; each gets what it would get alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.rankers.mlp import MLP
from clickprism.serve.app import Service
from clickprism.serve.bundle import write_bundle
from clickprism.serve.feature_scorer import FeatureScorer
from clickprism.serve.scorer import Candidates, Scored
from clickprism.serve.settings import ServeSettings
from tests.serve.rankers import FEATURES, network_model, raw_lists
from tests.serve.service_kit import TOKEN, Reply, ask, started


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> ServeSettings:
    folder = tmp_path_factory.mktemp("together") / "bundle"
    write_bundle(folder, network_model(MLP(hidden=(16, 8)), "query-standard"))
    return ServeSettings(folder, token=TOKEN)


def body(place: int) -> dict[str, Any]:
    rows = raw_lists(8, 5, missing=False).features[5 * place : 5 * place + 5].tolist()
    return {"documents": [{"id": f"d{number}", "features": row} for number, row in enumerate(rows)]}


def asked(settings: ServeSettings, bodies: list[dict[str, Any]], *, at_once: bool) -> list[Reply]:
    async def work(service: Service) -> list[Reply]:
        calls = [ask(service, "POST", "/v1/rank", each) for each in bodies]
        return list(await asyncio.gather(*calls)) if at_once else [await call for call in calls]

    async def whole() -> list[Reply]:
        async with started(settings) as service:
            return await work(service)

    return asyncio.run(whole())


def test_lists_scored_together_are_scored_as_alone(settings: ServeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, whole = [], FeatureScorer.score

    def counted(self: FeatureScorer, candidates: Candidates, *, explain: bool = False) -> Scored:
        sizes.append(len(candidates))
        return whole(self, candidates, explain=explain)

    monkeypatch.setattr(FeatureScorer, "score", counted)
    bodies = [body(place) for place in range(6)]
    alone = asked(settings, bodies, at_once=False)
    warm = len(sizes)
    together = asked(settings, bodies, at_once=True)
    assert 30 in sizes[warm:]
    for one, other in zip(alone, together, strict=True):
        assert [item["id"] for item in one.json["items"]] == [item["id"] for item in other.json["items"]]
        scores = [[item["score"] for item in each.json["items"]] for each in (one, other)]
        np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5)


def test_a_list_that_cannot_be_scored_spoils_no_other(tmp_path: Path) -> None:
    write_bundle(tmp_path / "bundle", network_model(MLP(hidden=(16, 8)), "none"))
    bare = ServeSettings(tmp_path / "bundle", token=TOKEN)
    lost = {"documents": [{"id": "d", "features": [None] * FEATURES}]}
    replies = asked(bare, [body(0), lost, body(1)], at_once=True)
    assert [reply.status for reply in replies] == [200, 422, 200]
    assert len(replies[0].json["items"]) == 5
