"""`POST /v1/rank`: one lookup in the store, one call of the scorer, one sort."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import msgspec
import numpy as np

from clickprism.errors import DataError
from clickprism.evaluation.interleaving import team_draft
from clickprism.serve.bundle.rollout import is_interleaved
from clickprism.serve.http.messages import Document, Item, RankAnswer, RankRequest, read_rank_request
from clickprism.serve.http.metrics import Metrics
from clickprism.serve.http.problems import Problem, invalid
from clickprism.serve.http.request import BUSY, JSON, Answer, Call
from clickprism.serve.scoring.scorer import Candidates, Scored
from clickprism.serve.settings import ServeSettings
from clickprism.serve.store.base import FeatureStore, Found, StoreUnavailableError, is_remote
from clickprism.types import Float32, Float64, Int64

if TYPE_CHECKING:
    from clickprism.serve.http.models import Live, Models

T = TypeVar("T")
ENCODE: Final = msgspec.json.Encoder().encode
THREADS: Final = 4
"""Threads of a worker for work that would delay other requests: language models, and stores over the network."""
MODELS: Final = 3
"""Number of models whose scores of a query are remembered: the current one, a challenger and a shadow."""


@final
class Inputs(msgspec.Struct, frozen=True, gc=False):
    """A request, its documents, whether it has nothing but their ids, and what one version of the store has."""

    request: RankRequest
    ids: list[str]
    bare: bool
    found: Found | None


def look_up(request: RankRequest, live: Live, store: FeatureStore | None, *, other: Live | None = None) -> Inputs:
    """Look up once in the store the values that the models need or can use and the request does not contain."""
    ids, bare = request.ids()
    nothing = Inputs(request, ids, bare, None)
    if store is None:
        return nothing
    needed = _needs_store(request, live, bare=bare)
    if not needed:
        evidence = live.evidence or (other is not None and (other.evidence or _needs_store(request, other, bare=bare)))
        if not evidence or request.query_id is None:
            return nothing
    elif request.query_id is None:
        raise invalid("the store has what the model needs by query and document: give query_id", "/query_id")
    try:
        return Inputs(request, ids, bare, store.get(request.query_id or "", ids))
    except (StoreUnavailableError, DataError) as error:
        if not needed:
            return nothing
        raise Problem(503, f"the store cannot be read: {error}", kind="store", headers=BUSY) from None


def _needs_store(request: RankRequest, live: Live, *, bare: bool) -> bool:
    """Return whether a model needs, or can use, more than a request gives."""
    if live.needs_clicks or (bare and live.needs_features):
        return True
    if not live.needs_features:
        return False
    given = request.features()
    return None in given or (request.query_id is not None and any(isinstance(each, dict) for each in given))


def score(inputs: Inputs, live: Live, *, explain: bool) -> Scored:
    """Return the scores of the documents of a request, [n]; a problem of status 422 if they cannot be scored.

    Documents that the store does not have get NaN from a model that takes no missing values. If the store has clicks on
    the pairs, and the bundle says how to join them, scores are joined with them.
    """
    found = inputs.found
    scored = None if explain else _remembered(inputs, live)
    if scored is None:
        scored = _score(inputs, live, explain=explain)
    columns = None if live.evidence is None or found is None else live.columns(found.info.fields)["evidence"]
    if live.evidence is None or found is None or columns is None:
        return scored
    joined, parts = live.evidence.join(scored.scores, found.x[:, columns])
    return Scored(joined, {**scored.parts, **parts} if explain else {})


def _remembered(inputs: Inputs, live: Live) -> Scored | None:
    """Return scores of the rows in the store, which are computed once for a query, a model and a version of the store.

    None if they do not apply: the request has features, the model compares documents with each other, or the query has
    many more documents than the request.
    """
    found = inputs.found
    if found is None or found.block is None or not (inputs.bare and found.whole and live.pointwise):
        return None
    known = found.block.scores
    scores = known.get(live.version)
    if scores is None:
        columns = live.columns(found.info.fields)["features"]
        if columns is None or len(found.rows) > 2 * len(inputs.ids):
            return None
        try:
            scores = live.scorer.score(Candidates(features=found.rows[:, columns])).scores
        except DataError:  # a document that the request does not name may have no score
            return None
        if len(known) > MODELS:
            known.clear()
        known[live.version] = scores
        found.held.remember(inputs.request.query_id, found.block)
    return Scored(scores.take(found.places))


def _score(inputs: Inputs, live: Live, *, explain: bool) -> Scored:
    found, request = inputs.found, inputs.request
    features = clicks = texts = stored = None
    columns = {} if found is None else live.columns(found.info.fields)
    x = None if found is None else found.x
    if live.needs_features:
        if x is not None and columns["features"] is not None:
            stored = x[:, columns["features"]]
        features = stored if inputs.bare and stored is not None else _features(inputs, live, stored)
    if live.needs_clicks:
        if x is None or columns["clicks"] is None:
            raise Problem(503, "the store lacks click fields that the model needs", kind="store")
        clicks = x[:, columns["clicks"]]
    if live.needs_texts:
        texts = _texts(request)
    lost = None
    if features is not None and found is not None and live.refuses_missing and not found.whole:
        lost = (found.places < 0) & np.isnan(features).any(1)
        features = np.where(lost[:, None], np.float32(0), features)
    try:
        scored = live.scorer.score(Candidates(request.query, texts, features, clicks), explain=explain)
    except DataError as error:
        raise Problem(422, str(error), kind="unscorable", pointer="/documents") from None
    if lost is None or not lost.any():
        return scored
    by_document = {name: values for name, values in scored.parts.items() if name != "observation"}
    parts = {name: np.where(lost, np.nan, values) for name, values in by_document.items()}
    return Scored(np.where(lost, np.nan, scored.scores), {**scored.parts, **parts})


def order(scores: Float64, depth: int | None) -> Int64:
    """Return the ranking as places in the request, best first, [n]; equal scores keep their order, NaN is last.

    With a depth, only so many documents are re-ranked, and the others follow in the order of the request.

    >>> order(np.array([0.1, 0.2, 0.9]), None).tolist(), order(np.array([0.1, 0.2, 0.9]), 2).tolist()
    ([2, 1, 0], [1, 0, 2])
    """
    first = (-scores[:depth]).argsort(kind="stable")
    return first if len(first) == len(scores) else np.concatenate([first, np.arange(len(first), len(scores))])


def items(inputs: Inputs, places: Int64, scored: Scored) -> list[Item]:
    """Return the documents at these rows, at most `top`, with the parts of each score if the request asks for them."""
    if inputs.request.top is not None:
        places = places[: int(inputs.request.top)]
    made = list(map(Item, map(inputs.ids.__getitem__, places.tolist()), scored.scores[places].tolist()))
    if inputs.request.explain:
        parts = {name: values[places].tolist() for name, values in scored.parts.items() if name != "observation"}
        for rank, item in enumerate(made):
            item.parts = {name: values[rank] for name, values in parts.items()}
    return made


def drafted(
    inputs: Inputs, scored: Scored, places: Int64, by: tuple[Live, Live], request_id: str
) -> tuple[list[Item], int | None]:
    """Return the list that two models draft in turns, and how many documents they re-ranked, None for all.

    Each item has the score and the version of the model that drafted it. Documents below the depths of both models are
    last, in the order of the request. A challenger that cannot score the request drafts nothing.
    """
    theirs, other, count = scored, list[int](), len(inputs.ids)
    depths = [by[0].reranked(count)]
    with suppress(Problem):
        theirs = score(inputs, by[1], explain=inputs.request.explain)
        other = order(theirs.scores, by[1].rerank_depth).tolist()
        depths.append(by[1].reranked(count))
    length = None if inputs.request.top is None else int(inputs.request.top)
    draft = team_draft(places.tolist(), other, request_id=request_id, length=length)
    chosen = np.array(draft.documents, np.int64)
    lists = items(inputs, chosen, scored), items(inputs, chosen, theirs)
    made = [lists[team][rank] for rank, team in enumerate(draft.teams)]
    for item, team in zip(made, draft.teams, strict=True):
        item.ranker = by[team].version
    return made, None if None in depths else max(depth for depth in depths if depth is not None)


def _features(inputs: Inputs, live: Live, stored: Float32 | None) -> Float32:
    """Return raw features in the order of the model: those of the request, else of the store, else NaN, [n, F]."""
    names, request = live.scorer.feature_names, inputs.request
    whole = np.full((len(request.documents), len(names)), np.nan, np.float32) if stored is None else stored.copy()
    rows, lists = list[int](), list[list[float | None]]()
    for place, values in enumerate(request.features()):
        if isinstance(values, dict):
            _write_named(values, whole[place], live, place, stored=stored is not None)
        elif values is not None:
            if len(values) != len(names):
                raise invalid(f"expected {len(names)} features, got {len(values)}", "/documents", place, "features")
            rows.append(place)
            lists.append(values)
        elif stored is None:
            raise invalid(f"{_without_features(inputs, live)}: give them with each document", "/documents", place)
    if rows:
        whole[rows] = np.array(lists, np.float32)
    return whole


def _without_features(inputs: Inputs, live: Live) -> str:
    """Return why there are no features for a request."""
    if inputs.found is None:
        return "the model needs features, and there is no store that has them"
    known = set(inputs.found.info.fields)
    lacking = next(name for name in live.scorer.feature_names if name not in known)
    return f"the store lacks the feature {lacking!r} that the model needs (store publish --features)"


def _write_named(values: dict[str, Any], row: Float32, live: Live, place: int, *, stored: bool) -> None:
    """Write features by name into a row of the model, encoded as in training where training encoded them."""
    column, encoding, path = live.column, live.encoding, ("/documents", place, "features")
    if encoding is not None and (values.keys() <= live.encoded.keys() or not values.keys() <= column.keys()):
        try:
            encoded = encoding.encode_rows([values])[0]
        except DataError as error:
            raise invalid(str(error).replace("document 0", f"document {place}"), *path) from None
        for name, part in live.encoded.items():
            if name in values or not stored:
                row[part] = encoded[part]
        return
    for name, value in values.items():
        if name not in column:
            known = ", ".join(list(column)[:8]) + (", ..." if len(column) > 8 else "")
            raise invalid(f"the model has no feature {name!r}; it takes {known}", *path, name)
        if isinstance(value, str | list):
            detail = f"the feature {name!r} is a number: the model was not trained on texts and lists"
            raise invalid(detail, *path, name)
        row[column[name]] = np.nan if value is None else value


def _texts(request: RankRequest) -> list[str]:
    if request.query is None:
        raise invalid("the model reads the text of the query: give query", "/query")
    texts = [each.text if isinstance(each, Document) else None for each in request.documents]
    if None in texts:
        detail = "the model reads the texts of documents: give one with each"
        raise invalid(detail, "/documents", texts.index(None), "text")
    return [text for text in texts if text is not None]


@final
class RankRoute:
    """Answers requests to rank, each by the model that was current when it came."""

    def __init__(self, settings: ServeSettings, models: Models, metrics: Metrics) -> None:
        self._settings, self._models, self._metrics = settings, models, metrics
        self._max_age = math.inf if settings.max_feature_age is None else settings.max_feature_age
        self._pool = ThreadPoolExecutor(THREADS, "clickprism-rank")
        self._queued = 0

    def close(self) -> None:
        """Finish what is under way."""
        self._pool.shutdown()

    async def take(self, call: Call) -> Answer:
        """Read a request and rank."""
        call.check_type(JSON)
        body = await call.read(limit=self._settings.max_body, timeout=self._settings.timeout)
        live = self._models.current.live
        if live is None:
            detail = self._models.current.problem or "the model is not loaded yet"
            raise Problem(503, detail, kind="starting", headers=BUSY)
        request = read_rank_request(body, max_documents=self._settings.max_documents)
        if live.needs_texts or is_remote(self._settings.store):
            return await self._in_thread(lambda: self._answer(request, live, call))
        return self._answer(request, live, call)

    def _answer(self, request: RankRequest, live: Live, call: Call) -> Answer:
        challenger = None if self._models.challenger is None else self._models.challenger.live
        if challenger is not None and not is_interleaved(call.request_id, challenger.share):
            challenger = None
        inputs = look_up(request, live, self._models.store, other=challenger)
        scored = score(inputs, live, explain=request.explain)
        places = order(scored.scores, live.rerank_depth)
        answer = RankAnswer(call.request_id, live.version, 0.0, [])
        if challenger is None:
            answer.items, answer.reranked = items(inputs, places, scored), live.reranked(len(inputs.ids))
        else:
            answer.items, answer.reranked = drafted(inputs, scored, places, (live, challenger), call.request_id)
            answer.interleaved = [live.version, challenger.version]
        if inputs.found is not None:
            self._add_age(answer, inputs.ids, inputs.found)
        if request.explain and "observation" in scored.parts:
            answer.observation = scored.parts["observation"].tolist()
        self._metrics.documents.inc(len(inputs.ids))
        call.notes["documents"], call.notes["model_version"] = len(inputs.ids), live.version
        shadow = self._models.shadow
        if shadow is not None:
            call.after = lambda: shadow.offer(inputs, scored.scores, places)
        answer.took_ms = round((time.perf_counter() - call.started) * 1000, 3)
        return Answer(ENCODE(answer))

    def _add_age(self, answer: RankAnswer, ids: list[str], found: Found) -> None:
        """Say which version of the store was read, how old it is, and what it lacks."""
        info, age = found.info, found.info.age()
        answer.feature_version, answer.feature_as_of = info.version, info.as_of_text
        answer.feature_age, answer.stale = round(age, 3), age > self._max_age
        if answer.stale:
            self._metrics.stale.inc()
        if not found.whole:
            answer.not_found = [ids[place] for place in np.flatnonzero(found.places < 0)]
            self._metrics.not_found.inc(len(answer.not_found))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do slow work in a thread, within the time limit; refuse it if too much waits already."""
        if self._queued >= self._settings.max_waiting:
            raise Problem(503, "too many requests wait to be scored", kind="busy", headers=BUSY)
        self._queued += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(lambda _: setattr(self, "_queued", self._queued - 1))
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await future
        except TimeoutError:
            detail = f"no answer within {self._settings.timeout:g} s"
            raise Problem(503, detail, kind="timeout", headers=BUSY) from None
