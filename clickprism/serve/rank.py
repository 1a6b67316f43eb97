"""From a request to a ranking: one lookup in the store, one call of the scorer, one sort."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import final

import numpy as np

from clickprism.errors import DataError
from clickprism.serve.answers import Item
from clickprism.serve.live import Live, taken
from clickprism.serve.problems import Problem
from clickprism.serve.requests import Document, RankRequest
from clickprism.serve.scorer import Candidates, Scored
from clickprism.serve.store import AgePolicy, FeatureStore, Found, StaleFeaturesError, StoreUnavailableError
from clickprism.types import Float32, Int64


@final
@dataclass(frozen=True, eq=False, slots=True)
class Inputs:
    """A request, and what the store has for it, of one snapshot."""

    request: RankRequest
    ids: list[str]
    found: Found | None


@final
@dataclass(frozen=True, eq=False, slots=True)
class Age:
    """How old what the store has is."""

    as_of: str
    seconds: float
    stale: bool


def look_up(request: RankRequest, lives: tuple[Live, ...], store: FeatureStore | None) -> Inputs:
    """Ask the store once, where the request does not say all that the models need."""
    ids = request.ids
    if store is None or not any(live.needs_clicks or (live.needs_features and _lacks(request)) for live in lives):
        return Inputs(request, ids, None)
    if request.query_id is None:
        detail = "the store has what the model needs by query and document: say query_id"
        raise Problem(422, detail, kind="invalid", pointer="/query_id")
    try:
        return Inputs(request, ids, store.get(request.query_id, ids))
    except StoreUnavailableError as error:
        raise Problem(503, str(error), kind="store", headers=((b"retry-after", b"1"),)) from None
    except DataError as error:
        raise Problem(503, f"the store cannot be read: {error}", kind="store") from None


def candidates(inputs: Inputs, live: Live) -> Candidates:
    """What the model scores; a problem of status 422 where the request says too little, or something else."""
    found = inputs.found
    columns = None if found is None else live.columns(found.info.fields)
    features = clicks = texts = None
    if live.needs_features:
        stored = None
        if found is not None and columns is not None and columns.features is not None:
            stored = taken(found.x, columns.features)
        features = _features(inputs.request, live.scorer.feature_names, stored)
    if live.needs_clicks:
        if found is None or columns is None or columns.clicks is None:
            raise Problem(503, "the store lacks click fields that the model needs", kind="store")
        clicks = taken(found.x, columns.clicks)
    if live.needs_texts:
        texts = _texts(inputs.request)
    return Candidates(query=inputs.request.query, texts=texts, features=features, clicks=clicks)


def score(inputs: Inputs, live: Live, *, explain: bool) -> Scored:
    """The scores of the request's documents, [n]; a problem of status 422 where they cannot be scored."""
    wanted = candidates(inputs, live)
    try:
        return live.scorer.score(wanted, explain=explain)
    except DataError as error:
        raise Problem(422, str(error), kind="unscorable", pointer="/documents") from None


def order(scored: Scored) -> Int64:
    """The ranking as places in the request, best first; equal scores keep the order of the request, [n]."""
    return np.argsort(-scored.scores, kind="stable")


def items(inputs: Inputs, scored: Scored, ranking: Int64) -> list[Item]:
    """The documents in ranked order, with what their scores are made of where that was asked for."""
    ids, chosen = inputs.ids, ranking if inputs.request.top is None else ranking[: inputs.request.top]
    places, scores = chosen.tolist(), scored.scores[chosen].tolist()
    if not inputs.request.explain:
        return [Item(ids[place], value) for place, value in zip(places, scores, strict=True)]
    parts = {name: values[chosen].tolist() for name, values in scored.parts.items() if name != "observation"}
    return [
        Item(ids[place], value, {name: values[rank] for name, values in parts.items()})
        for rank, (place, value) in enumerate(zip(places, scores, strict=True))
    ]


def age(found: Found, policy: AgePolicy) -> Age:
    """How old the features are; a problem of status 503 where they are too old and such are refused."""
    now = datetime.now(UTC).replace(tzinfo=None)
    try:
        stale = policy.stale(found.info, now=now)
    except StaleFeaturesError as error:
        raise Problem(503, str(error), kind="stale") from None
    return Age(f"{found.info.as_of.isoformat()}Z", found.info.age(now), stale)


def _lacks(request: RankRequest) -> bool:
    """Whether a document comes without features."""
    return any(isinstance(each, str) or each.features is None for each in request.documents)


def _features(request: RankRequest, names: tuple[str, ...], stored: Float32 | None) -> Float32:
    """Raw features in the order of the model: those of the request, and those of the store for the rest, [n, F]."""
    given = [
        (place, each.features)
        for place, each in enumerate(request.documents)
        if isinstance(each, Document) and each.features is not None
    ]
    if not given and stored is not None:
        return stored
    if len(given) < len(request.documents) and stored is None:
        first = next(i for i, each in enumerate(request.documents) if isinstance(each, str) or each.features is None)
        detail = "the model needs features, and there is no store that has them: give them with each document"
        raise Problem(422, detail, kind="invalid", pointer=f"/documents/{first}")
    wanted = names if request.feature_names is None else tuple(request.feature_names)
    for place, values in given:
        if len(values) != len(wanted):
            detail = f"expected {len(wanted)} features, got {len(values)}"
            raise Problem(422, detail, kind="invalid", pointer=f"/documents/{place}/features")
    rows = np.array([values for _, values in given], np.float32)
    if wanted != names:
        rows = rows[:, _places(wanted, names)]
    if len(given) == len(request.documents):
        return rows
    whole = np.array(stored, np.float32)
    whole[[place for place, _ in given]] = rows
    return whole


def _places(given: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """Where each feature of the model stands in the request."""
    known = {name: place for place, name in enumerate(given)}
    missing = [name for name in names if name not in known]
    if missing or len(known) != len(given):
        detail = f"it lacks {missing[0]!r}" if missing else "it has one twice"
        raise Problem(422, f"feature_names must name every feature: {detail}", kind="invalid", pointer="/feature_names")
    return [known[name] for name in names]


def _texts(request: RankRequest) -> list[str]:
    if request.query is None:
        raise Problem(422, "the model reads the text of the query: say query", kind="invalid", pointer="/query")
    texts = [each.text if isinstance(each, Document) else None for each in request.documents]
    lacking = next((place for place, text in enumerate(texts) if text is None), None)
    if lacking is not None:
        detail = "the model reads the texts of documents: give one with each"
        raise Problem(422, detail, kind="invalid", pointer=f"/documents/{lacking}/text")
    return [text for text in texts if text is not None]
