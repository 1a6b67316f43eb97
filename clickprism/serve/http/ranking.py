"""`POST /v1/rank`: one lookup in the store, one call of the scorer, one sort."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import msgspec
import numpy as np

from clickprism.errors import DataError
from clickprism.evaluation.interleaving import team_draft
from clickprism.serve.http.call import BUSY, JSON, Answer, Call
from clickprism.serve.http.messages import Document, Item, RankAnswer, RankRequest, read_rank_request
from clickprism.serve.http.metrics import Metrics
from clickprism.serve.http.problems import Problem
from clickprism.serve.scoring.scorer import Candidates, Scored
from clickprism.serve.settings import ServeSettings
from clickprism.serve.store.base import SCHEMES, FeatureStore, Found, StoreInfo, StoreUnavailableError
from clickprism.types import Bool, Float32, Float64, Int64

if TYPE_CHECKING:
    from clickprism.serve.http.models import Live, Models

T = TypeVar("T")
ENCODE: Final = msgspec.json.Encoder().encode
THREADS: Final = 4
"""Of a worker, for what would hold up other requests: language models, and stores over the network."""


@final
class Inputs(msgspec.Struct, frozen=True, gc=False):
    """A request, its documents, whether it has nothing but their ids, and what one snapshot of the store has."""

    request: RankRequest
    ids: list[str]
    bare: bool
    found: Found | None


@final
class Ranking(msgspec.Struct, frozen=True, gc=False):
    """A request's documents, best first; those below the depth of the model follow in the order of the request.

    Attributes:
        places: of the documents in the request, [n].
        scores: in the same order, [n].
        scored: in the order of the request.
    """

    places: Int64
    scores: Float64
    scored: Scored


@final
class Ages:
    """How old what a store has is, and whether that is too old: marked, or refused with status 503."""

    def __init__(self, max_age: float | None, *, refuse: bool) -> None:
        self._max_age = math.inf if max_age is None else max_age
        self._refuse = refuse
        self._known: tuple[StoreInfo | None, str, float] = (None, "", 0.0)

    def of(self, info: StoreInfo, *, now: float | None = None) -> tuple[str, float, bool]:
        """Return when it was true, seconds since then, and whether it is stale."""
        known, as_of, at = self._known
        if known is not info:
            as_of, at = f"{info.as_of.isoformat()}Z", info.as_of.replace(tzinfo=UTC).timestamp()
            self._known = (info, as_of, at)
        age = max(0.0, (time.time() if now is None else now) - at)
        if age > self._max_age and self._refuse:
            detail = f"the features are {age:.0f} s old, more than max_feature_age {self._max_age:g} s"
            raise Problem(503, detail, kind="stale")
        return as_of, round(age, 3), age > self._max_age


def look_up(request: RankRequest, live: Live, store: FeatureStore | None, *, other: Live | None = None) -> Inputs:
    """Ask the store once, where the request does not say all that the model, or the other one, needs."""
    ids, bare = request.ids()
    if store is None or not _asks(request, live, bare=bare):
        return Inputs(request, ids, bare, _if_known(request, ids, (live, other), store, bare=bare))
    if request.query_id is None:
        detail = "the store has what the model needs by query and document: say query_id"
        raise Problem(422, detail, kind="invalid", pointer="/query_id")
    try:
        return Inputs(request, ids, bare, store.get(request.query_id, ids))
    except StoreUnavailableError as error:
        raise Problem(503, str(error), kind="store", headers=((b"retry-after", b"1"),)) from None
    except DataError as error:
        raise Problem(503, f"the store cannot be read: {error}", kind="store") from None


def _if_known(
    request: RankRequest, ids: list[str], models: tuple[Live, Live | None], store: FeatureStore | None, *, bare: bool
) -> Found | None:
    """Return evidence on the pairs, and what only the other model needs; None where the store cannot be asked."""
    live, other = models
    if store is None or request.query_id is None:
        return None
    if live.evidence is None and (other is None or not (other.evidence or _asks(request, other, bare=bare))):
        return None
    with suppress(StoreUnavailableError, DataError):
        return store.get(request.query_id, ids)
    return None


def _asks(request: RankRequest, live: Live, *, bare: bool) -> bool:
    """Return whether a model needs, or can use, more than a request gives."""
    if live.needs_clicks or (bare and live.needs_features):
        return True
    if not live.needs_features:
        return False
    if any(isinstance(each, str) or each.features is None for each in request.documents):
        return True
    some = any(isinstance(each, Document) and isinstance(each.features, dict) for each in request.documents)
    return some and request.query_id is not None


def candidates(inputs: Inputs, live: Live) -> Candidates:
    """What the model scores; a problem of status 422 where the request says too little, or something else."""
    found = inputs.found
    x, columns = (None, None) if found is None else (found.x, live.columns(found.info.fields))
    features = clicks = texts = None
    if live.needs_features:
        stored = None
        if x is not None and columns is not None and columns.features is not None:
            stored = x[:, columns.features]
        bare = inputs.bare and stored is not None and inputs.request.feature_names is None
        features = stored if bare else _features(inputs.request, live, stored)
    if live.needs_clicks:
        if x is None or columns is None or columns.clicks is None:
            raise Problem(503, "the store lacks click fields that the model needs", kind="store")
        clicks = x[:, columns.clicks]
    if live.needs_texts:
        texts = _texts(inputs.request)
    return Candidates(query=inputs.request.query, texts=texts, features=features, clicks=clicks)


def score(inputs: Inputs, live: Live, *, explain: bool) -> Scored:
    """Return the scores of the request's documents, [n]; a problem of status 422 where they cannot be scored.

    Documents that the store does not have, of a model that takes no missing values, get NaN: they come last. Where the
    store has clicks on the pairs, and the bundle says how to join them, scores are joined with them.
    """
    wanted = candidates(inputs, live)
    lost = _lost(inputs, live, wanted)
    try:
        if lost is None:
            scored = live.scorer.score(wanted, explain=explain)
        else:
            texts = None if wanted.texts is None else [wanted.texts[place] for place in np.flatnonzero(~lost).tolist()]
            features, clicks = (None if x is None else x[~lost] for x in (wanted.features, wanted.clicks))
            scored = live.scorer.score(Candidates(wanted.query, texts, features, clicks), explain=explain)
            parts = {name: _spread(x, lost) if name != "observation" else x for name, x in scored.parts.items()}
            scored = Scored(_spread(scored.scores, lost), parts)
    except DataError as error:
        raise Problem(422, str(error), kind="unscorable", pointer="/documents") from None
    if live.evidence is None or inputs.found is None:
        return scored
    columns = live.columns(inputs.found.info.fields).evidence
    if columns is None:
        return scored
    joined, parts = live.evidence.join(scored.scores, inputs.found.x[:, columns])
    return Scored(joined, {**scored.parts, **parts} if explain else {})


def _lost(inputs: Inputs, live: Live, wanted: Candidates) -> Bool | None:
    """The documents without features, [n]; None where all have some, or the model knows what to do without."""
    if wanted.features is None or inputs.found is None or not live.refuses_missing or inputs.found.whole:
        return None
    lost: Bool = ~inputs.found.found & np.isnan(wanted.features).any(1)
    return lost if lost.any() else None


def _spread(values: Float64, lost: Bool) -> Float64:
    """The values of the other documents in their places, NaN for those that are lost, [n]."""
    whole = np.full(len(lost), np.nan)
    whole[~lost] = values
    return whole


def rank(inputs: Inputs, live: Live) -> Ranking:
    """Return the ranking of a request."""
    scored = score(inputs, live, explain=inputs.request.explain)
    places = order(scored, live)
    return Ranking(places, scored.scores[places], scored)


def order(scored: Scored, live: Live) -> Int64:
    """Return the ranking as places in the request, best first, [n]; equal scores keep their order, NaN is last.

    Of a model that re-ranks only the first documents of a request, the others follow in the order of the request.
    """
    count = len(scored.scores)
    depth = live.reranked(count)
    if depth is None:
        return (-scored.scores).argsort(kind="stable")
    return np.concatenate([(-scored.scores[:depth]).argsort(kind="stable"), np.arange(depth, count)])


def items(inputs: Inputs, ranking: Ranking) -> list[Item]:
    """The documents in ranked order, with what their scores are made of where that was asked for."""
    chosen, scores, scored = ranking.places, ranking.scores, ranking.scored
    if inputs.request.top is not None:
        chosen, scores = chosen[: int(inputs.request.top)], scores[: int(inputs.request.top)]
    made = list(map(Item, map(inputs.ids.__getitem__, chosen.tolist()), scores.tolist()))
    if inputs.request.explain:
        parts = {name: values[chosen].tolist() for name, values in scored.parts.items() if name != "observation"}
        for rank, item in enumerate(made):
            item.parts = {name: values[rank] for name, values in parts.items()}
    return made


def _features(request: RankRequest, live: Live, stored: Float32 | None) -> Float32:
    """Return raw features in the order of the model: those of the request, else of the store, else NaN, [n, F]."""
    names = live.scorer.feature_names
    order = None if request.feature_names is None else _places(tuple(request.feature_names), names)
    whole = np.full((len(request.documents), len(names)), np.nan, np.float32) if stored is None else stored.copy()
    rows: list[int] = []
    lists: list[list[float | None]] = []
    for place, each in enumerate(request.documents):
        values = each.features if isinstance(each, Document) else None
        if values is None and stored is None:
            detail = "the model needs features, and there is no store that has them: give them with each document"
            raise Problem(422, detail, kind="invalid", pointer=f"/documents/{place}")
        if isinstance(values, dict):
            _by_name(values, whole[place], live, place, stored=stored is not None)
        elif values is not None:
            if len(values) != len(names):
                detail = f"expected {len(names)} features, got {len(values)}"
                raise Problem(422, detail, kind="invalid", pointer=f"/documents/{place}/features")
            rows.append(place)
            lists.append(values)
    if lists:
        given = np.array(lists, np.float32)
        whole[rows] = given if order is None else given[:, order]
    return whole


def _by_name(values: dict[str, Any], row: Float32, live: Live, place: int, *, stored: bool) -> None:
    """Write features by name into a row of the model, encoded as in training where training encoded them."""
    column, encoding = live.column, live.encoding
    if encoding is not None and (values.keys() <= live.encoded.keys() or not values.keys() <= column.keys()):
        try:
            made = encoding.encode_rows([values])[0]
        except DataError as error:
            detail = str(error).replace("document 0", f"document {place}")
            raise Problem(422, detail, kind="invalid", pointer=f"/documents/{place}/features") from None
        for name, part in live.encoded.items():
            if name in values or not stored:
                row[part] = made[part]
        return
    for name, value in values.items():
        if name in column and (value is None or isinstance(value, float | int)):
            row[column[name]] = np.nan if value is None else value
            continue
        step = name.replace("~", "~0").replace("/", "~1")
        known = ", ".join(list(column)[:8]) + (", ..." if len(column) > 8 else "")
        detail = f"the model has no feature {name!r}; it takes {known}"
        if name in column:
            detail = f"the feature {name!r} is a number: the model was not trained on texts and lists"
        raise Problem(422, detail, kind="invalid", pointer=f"/documents/{place}/features/{step}")


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


@final
class RankRoute:
    """Answers requests to rank, each by the model that was current when it came."""

    def __init__(self, settings: ServeSettings, models: Models, metrics: Metrics) -> None:
        self._settings = settings
        self._models = models
        self._metrics = metrics
        self._ages = Ages(settings.max_feature_age, refuse=settings.refuse_stale)
        self._remote = settings.store is not None and settings.store.startswith(SCHEMES)
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
        if self._settings.log_queries:
            call.notes |= {"query_id": request.query_id, "query": request.query}
        if live.needs_texts or self._remote:
            return await self._beside(lambda: self._answer(request, live, call))
        return self._answer(request, live, call)

    def _answer(self, request: RankRequest, live: Live, call: Call) -> Answer:
        challenger = None if self._models.challenger is None else self._models.challenger.live
        inputs = look_up(request, live, self._models.store, other=challenger)
        ranking = rank(inputs, live)
        answer = RankAnswer(call.request_id, live.version, 0.0, [])
        if challenger is None:
            answer.items, answer.reranked = items(inputs, ranking), live.reranked(len(inputs.ids))
        else:
            by = live, challenger
            answer.items, answer.reranked = drafted(inputs, ranking, by=by, request_id=call.request_id)
            answer.interleaved = [live.version, challenger.version]
        if inputs.found is not None:
            self._say_age(answer, inputs, inputs.found)
        if request.explain and "observation" in ranking.scored.parts:
            answer.observation = ranking.scored.parts["observation"].tolist()
        count = len(inputs.ids)
        self._metrics.documents.inc(count)
        call.notes["documents"], call.notes["model_version"] = count, live.version
        shadow = self._models.shadow
        if shadow is not None:
            call.after = lambda: shadow.offer(inputs, ranking.scored.scores, ranking.places)
        answer.took_ms = round((time.perf_counter() - call.started) * 1000, 3)
        return Answer(ENCODE(answer))

    def _say_age(self, answer: RankAnswer, inputs: Inputs, found: Found) -> None:
        answer.feature_version = found.info.version
        answer.feature_as_of, answer.feature_age, answer.stale = self._ages.of(found.info)
        if answer.stale:
            self._metrics.stale.inc()
        if not found.whole:
            answer.not_found = [inputs.ids[place] for place in np.flatnonzero(~found.found)]
            self._metrics.not_found.inc(len(answer.not_found))

    async def _beside(self, work: Callable[[], T]) -> T:
        """Do slow work in a thread, within the time limit, if not too much waits already."""
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


def drafted(
    inputs: Inputs, ranking: Ranking, *, by: tuple[Live, Live], request_id: str
) -> tuple[list[Item], int | None]:
    """Return the list that two models draft in turns, and how many documents they re-ranked, None for all.

    Each item has the score and the version of the model that drafted it. Each model re-ranks to its own depth, so
    documents below both depths are last, in the order of the request. A challenger that cannot score the request drafts
    nothing: all is by the first.
    """
    scored = theirs = ranking.scored
    other: list[int] = []
    depths = [by[0].reranked(len(inputs.ids))]
    with suppress(Problem):
        theirs = score(inputs, by[1], explain=inputs.request.explain)
        other = order(theirs, by[1]).tolist()
        depths.append(by[1].reranked(len(inputs.ids)))
    length = None if inputs.request.top is None else int(inputs.request.top)
    draft = team_draft(ranking.places.tolist(), other, request_id=request_id, length=length)
    places = np.array(draft.documents, np.int64)
    made = [items(inputs, Ranking(places, each.scores[places], each)) for each in (scored, theirs)]
    chosen = [made[team][rank] for rank, team in enumerate(draft.teams)]
    for item, team in zip(chosen, draft.teams, strict=True):
        item.ranker = by[team].version
    limits = [depth for depth in depths if depth is not None]
    return chosen, max(limits) if len(limits) == len(depths) else None
