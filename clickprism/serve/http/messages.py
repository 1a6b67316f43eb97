"""Bodies of requests and answers, one structure each, and the OpenAPI document that is made from them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any, Final, cast, final

import msgspec
from msgspec import Meta

from clickprism.serve.http.problems import CONTENT_TYPE, UNREADABLE, Details, Problem, malformed, phrase
from clickprism.serve.settings import ServeSettings

LARGEST: Final = 1e15
"""Of a feature's value: more loses its meaning in 32 bits, and a network may overflow on it."""
LONGEST_ID: Final = 512
LONGEST_TEXT: Final = 100_000
MOST: Final = 1_000_000

Id = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
Text = Annotated[str, Meta(max_length=LONGEST_TEXT)]
Value = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Raw = Value | bool | Annotated[str, Meta(max_length=LONGEST_TEXT)] | list[Value] | None


@final
class Document(msgspec.Struct, forbid_unknown_fields=True):
    """A document with what the request knows of it; the store has the rest.

    Attributes:
        id: as the store and the log have it.
        features: by name, or in the order of `feature_names` or of the model; null where one is missing. Of features by
            name, those that are not given are taken from the store, or filled as in training. A ranker that was trained
            on categories, dates or vectors takes them as texts and lists by name.
        text: for rankers that read.
    """

    id: Id
    features: list[Value | None] | dict[str, Raw] | None = None
    text: Text | None = None


@final
class RankRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One query and the documents to rank for it.

    Attributes:
        documents: ids, or objects with features or texts, in the order of the search engine: a service with a re-rank
            depth reorders only the first of them.
        query_id: as the store and the log have it.
        query: its text, for rankers that read.
        feature_names: the order of features that are lists; the model's, where it is not said.
        explain: say what each score is made of.
        top: how many items to answer with; all, where it is not said.
    """

    documents: Annotated[list[Id | Document], Meta(min_length=1)]
    query_id: Id | None = None
    query: Text | None = None
    feature_names: list[str] | None = None
    explain: bool = False
    top: Annotated[float, Meta(ge=1, le=MOST, multiple_of=1)] | None = None

    def ids(self) -> tuple[list[str], bool]:
        """The ids of the documents in the order of the request, and whether there is nothing but ids."""
        if set(map(type, self.documents)) == {str}:
            return cast("list[str]", self.documents), True
        return [each if isinstance(each, str) else each.id for each in self.documents], False


_DECODER: Final = msgspec.json.Decoder(RankRequest)


def read_rank_request(body: bytes, *, max_documents: int) -> RankRequest:
    """The request in a body.

    >>> read_rank_request(b'{"query_id": "q", "documents": ["a", {"id": "b"}]}', max_documents=2).ids()
    (['a', 'b'], False)
    >>> read_rank_request(b'{"documents": ["a", 4]}', max_documents=2)
    Traceback (most recent call last):
    clickprism.serve.http.problems.Problem: expected `str | object`, got `int`
    """
    try:
        request = _DECODER.decode(body)
    except UNREADABLE as error:
        raise malformed(error) from None
    if len(request.documents) > max_documents:
        detail = f"{len(request.documents)} documents are more than the {max_documents} that a request may have"
        raise Problem(413, detail, kind="too-many-documents", pointer="/documents")
    return request


@final
class Item(msgspec.Struct, omit_defaults=True, gc=False):
    """A document in its place of the ranking.

    Attributes:
        id: of the document.
        score: higher first; null for a document that the store does not have and the model cannot score without.
        parts: with `explain`: what the score is made of.
        ranker: the version of the model whose ranking put it here, when two are interleaved.
    """

    id: str
    score: float | None
    parts: dict[str, float | None] | None = None
    ranker: str | None = None


@final
class RankAnswer(msgspec.Struct, omit_defaults=True):
    """A ranking, all of one model and one state of the store.

    Attributes:
        request_id: that of the request's `X-Request-Id`, or a new one.
        model_version: of the bundle that scored.
        took_ms: milliseconds from the request's arrival to here.
        items: best first; where `reranked` is given, those documents best first, then the others as requested.
        feature_version: of the store, where it was asked.
        feature_as_of: when what it has was true, UTC.
        feature_age: seconds since then.
        stale: whether that is more than the service's limit.
        not_found: documents that the store does not have; they were scored as documents without clicks.
        observation: with `explain`: how often each position is observed, relative to the first, where the model knows.
        interleaved: the versions of the two models whose rankings were interleaved.
        reranked: the number of documents that were re-ranked, from the first of the request, where it was not all.
    """

    request_id: str
    model_version: str
    took_ms: float
    items: list[Item]
    feature_version: str | None = None
    feature_as_of: str | None = None
    feature_age: float | None = None
    stale: bool | None = None
    not_found: list[str] | None = None
    observation: list[float] | None = None
    interleaved: list[str] | None = None
    reranked: int | None = None


@final
class ModelAnswer(msgspec.Struct, omit_defaults=True):
    """A model that is loaded.

    Attributes:
        role: current, shadow or interleaved.
        version: of its bundle.
        kind: of its ranker.
        needs: what it scores by: features, clicks, texts.
        feature_names: in order.
        click_fields: in order.
        created: when the bundle was made.
        since: when this worker began to answer by it.
        method: what trained it.
        metrics: what it reached.
        data: what it was trained on.
        rerank_depth: the number of documents of a request that it re-ranks, from the first; all, where it is not said.
    """

    role: str
    version: str
    kind: str
    needs: list[str]
    feature_names: list[str]
    click_fields: list[str]
    created: str
    since: str
    method: dict[str, Any]
    metrics: dict[str, float]
    data: dict[str, Any]
    rerank_depth: int | None = None


@final
class ModelsAnswer(msgspec.Struct, omit_defaults=True):
    """The models that this worker answers by, and the store.

    Attributes:
        models: the current one first.
        previous: versions that a rollback goes back to, newest first.
        problem: why the model that the deployment points to is not served, if it is not.
        store: version, time and size of the store.
    """

    models: list[ModelAnswer]
    previous: list[str]
    problem: str | None = None
    store: dict[str, Any] | None = None


@final
class HealthAnswer(msgspec.Struct, omit_defaults=True):
    """Whether the service lives, or is ready to rank.

    Attributes:
        status: ok, ready or starting.
        model_version: that answers, when ready.
        problem: what is wrong though requests are answered, such as a new model that is broken.
    """

    status: str
    model_version: str | None = None
    problem: str | None = None


@final
class ShadowAnswer(msgspec.Struct):
    """How the shadow model would have ranked, over all workers since the service began.

    Attributes:
        version: of the shadow model.
        requests: that it scored.
        dropped: that it did not, since it could not keep up.
        failed: that it could not score.
        top_differs: requests with another first document.
        order_differs: requests with another order.
        mean_tau: Kendall's tau between the two orders, on average over requests of two documents and more.
        mean_difference: the absolute difference of a document's scores, on average.
    """

    version: str
    requests: int
    dropped: int
    failed: int
    top_differs: int
    order_differs: int
    mean_tau: float | None
    mean_difference: float | None


EVENT_KEY: Final = r"^[A-Za-z0-9._:-]{1,128}$"
NDJSON: Final = b"application/x-ndjson"


@final
class EventsAnswer(msgspec.Struct):
    """A batch that is on disk; the log has it within seconds.

    Attributes:
        request_id: of this request.
        key: under which the batch is known; the same batch again under the same key counts once.
        rows: number of rows.
    """

    request_id: str
    key: str
    rows: int


STRUCTURES: Final = (RankRequest, RankAnswer, ModelsAnswer, HealthAnswer, ShadowAnswer, EventsAnswer, Details)
SCHEMAS: Final = "#/components/schemas/"
ANYWHERE: Final = (400, 401, 405, 500, 503)
WITH_BODY: Final = (*ANYWHERE, 408, 413, 415, 422)
EVENT: Final = {
    "type": "object",
    "description": "An impression, a ranking or an interaction, with the columns of docs/datamodel.md.",
    "required": ["time", "search_id"],
}


def document(settings: ServeSettings, *, token: bool) -> dict[str, Any]:
    """Return the OpenAPI document, made from the structures that read and write the bodies.

    Which features a request needs depends on the model and the store; `GET /v1/models` says that.
    """
    _, schemas = msgspec.json.schema_components(STRUCTURES, ref_template=f"{SCHEMAS}{{name}}")
    schemas["RankRequest"]["properties"]["documents"]["maxItems"] = settings.max_documents
    limit = f"Bodies of at most {settings.max_body:,} bytes."
    rank = _operation("Rank documents for a query", "rank", _json("RankAnswer"), errors=WITH_BODY)
    rank["requestBody"] = {"required": True, "description": limit, "content": _json("RankRequest")}
    paths: dict[str, Any] = {"/v1/rank": {"post": rank}}
    if settings.log is not None:
        paths["/v1/events"] = {"post": _events(limit)}
    paths["/v1/models"] = {"get": _operation("The models that answer", "models", _json("ModelsAnswer"))}
    if settings.shadow is not None:
        paths["/v1/shadow"] = {"get": _operation("How the shadow disagrees", "shadow", _json("ShadowAnswer"))}
    text = {"text/plain": {"schema": {"type": "string"}}}
    paths["/metrics"] = {"get": _operation("Figures for Prometheus", "metrics", text)}
    for path, summary in (("healthz", "Whether the service lives"), ("readyz", "Whether it can rank")):
        answered = _operation(summary, path, _json("HealthAnswer"), errors=(400, 405, 500), open_to_all=True)
        unready = {"description": "Not yet, or too busy", "content": _json("HealthAnswer") | _problem()}
        answered["responses"]["503"] = unready
        paths[f"/{path}"] = {"get": answered}
    whole = {"application/json": {"schema": {"type": "object"}}}
    paths["/openapi.json"] = {
        "get": _operation("This document", "openapi", whole, errors=(400, 405, 500, 503), open_to_all=True)
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "clickprism",
            "version": version("clickprism"),
            "summary": "Ranks documents by relevance that is estimated from clicks.",
        },
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}] if token else [],
    }


def _operation(
    summary: str,
    name: str,
    content: dict[str, Any],
    *,
    status: int = 200,
    errors: tuple[int, ...] = ANYWHERE,
    open_to_all: bool = False,
) -> dict[str, Any]:
    responses: dict[str, Any] = {str(status): {"description": summary, "content": content}}
    for error in sorted(errors):
        responses[str(error)] = {"description": phrase(error), "content": _problem()}
    made: dict[str, Any] = {"operationId": name, "summary": summary, "responses": responses}
    return made | {"security": []} if open_to_all else made


def _events(limit: str) -> dict[str, Any]:
    errors = (*WITH_BODY, 409)
    made = _operation("Put events into the log", "events", _json("EventsAnswer"), status=202, errors=errors)
    header = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "pattern": EVENT_KEY}}
    header["description"] = "The same batch again under the same key counts once; by default, its SHA-256."
    batch = {"application/json": {"schema": {"type": "array", "minItems": 1, "description": "Events", "items": EVENT}}}
    lines = {NDJSON.decode(): {"schema": EVENT | {"description": "An event a line"}}}
    made["parameters"] = [header]
    made["requestBody"] = {"required": True, "description": limit, "content": batch | lines}
    return made


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"{SCHEMAS}{name}"}}}


def _problem() -> dict[str, Any]:
    return {CONTENT_TYPE.decode(): {"schema": {"$ref": f"{SCHEMAS}Details"}}}
