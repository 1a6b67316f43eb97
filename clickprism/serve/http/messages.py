"""Bodies of requests and answers, one structure each, and the OpenAPI document that is made from them."""

from __future__ import annotations

from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Final, cast, final

import msgspec
from msgspec import Meta

from clickprism.serve.http.problems import CONTENT_TYPE, UNREADABLE, Details, Problem, malformed
from clickprism.serve.settings import ServeSettings

LARGEST: Final = 1e15  # largest feature value: larger ones lose precision in 32 bits and may overflow in a network

Id = Annotated[str, Meta(min_length=1, max_length=512)]
Text = Annotated[str, Meta(max_length=100_000)]
Value = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Raw = Value | bool | Text | list[Value] | None


@final
class Document(msgspec.Struct, forbid_unknown_fields=True):
    """A document with what the request knows of it; the store has the rest."""

    id: Id  # Id of the document in the store and the log
    # Features by name, or as a list in the order of the model; null where one is missing. Features that are not given
    # by name come from the store, or are filled as in training. A ranker that was trained on categories, dates or
    # vectors takes them as texts and lists by name.
    features: list[Value | None] | dict[str, Raw] | None = None
    text: Text | None = None  # Text for rankers that read texts


@final
class RankRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One query and the documents to rank for it."""

    # Ids, or objects with features or texts, in the order of the search engine
    documents: Annotated[list[Id | Document], Meta(min_length=1)]
    query_id: Id | None = None  # Id of the query in the store and the log
    query: Text | None = None  # Text of the query for rankers that read texts
    explain: bool = False  # Add the parts of each score
    # Number of items in the answer; by default all
    top: Annotated[float, Meta(ge=1, le=1_000_000, multiple_of=1)] | None = None

    def ids(self) -> tuple[list[str], bool]:
        """Return the ids of the documents in the order of the request, and whether it has nothing but ids."""
        if set(map(type, self.documents)) == {str}:
            return cast("list[str]", self.documents), True
        return [each if isinstance(each, str) else each.id for each in self.documents], False

    def features(self) -> list[list[Value | None] | dict[str, Raw] | None]:
        """Return the features of each document."""
        return [None if isinstance(each, str) else each.features for each in self.documents]


_DECODER: Final = msgspec.json.Decoder(RankRequest)


def read_rank_request(body: bytes, *, max_documents: int) -> RankRequest:
    """Return the request in a body.

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
    """A document of the ranking."""

    id: str  # Id of the document
    # Score, higher first; null if the store does not have the document and the model needs its features
    score: float | None
    parts: dict[str, float | None] | None = None  # What the score consists of (`explain`)
    ranker: str | None = None  # Version of the model that placed the document here (interleaving)


@final
class RankAnswer(msgspec.Struct, omit_defaults=True):
    """A ranking by one model and one version of the store."""

    request_id: str  # That of the request's `X-Request-Id`, or a new one
    model_version: str  # Version of the bundle that scored
    took_ms: float  # Milliseconds from the arrival of the request to here
    # Documents, best first; where `reranked` is given, the others follow these in the order of the request
    items: list[Item]
    feature_version: str | None = None  # Version of the store
    feature_as_of: str | None = None  # Time of its features (UTC)
    feature_age: float | None = None  # Seconds since then
    stale: bool | None = None  # Whether that is more than the limit of the service
    not_found: list[str] | None = None  # Documents that the store does not have
    observation: list[float] | None = None  # Observation probability by position, relative to position 1 (`explain`)
    interleaved: list[str] | None = None  # Versions of the two models whose rankings were interleaved
    reranked: int | None = None  # Number of documents that were re-ranked, from the first of the request, if not all


@final
class ModelAnswer(msgspec.Struct, omit_defaults=True):
    """A model that is loaded; its role is current, shadow or interleaved."""

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
    inputs: list[str] | None = None  # Names by which requests give features, if training encoded them
    rerank_depth: int | None = None


@final
class ModelsAnswer(msgspec.Struct, omit_defaults=True):
    """The models that this worker answers with, and the store."""

    models: list[ModelAnswer]  # The current model first
    previous: list[str]  # Versions that a rollback returns to, newest first
    problem: str | None = None  # Why the model that the deployment points to is not served
    store: dict[str, Any] | None = None  # Version, time and size of the store; why its newest version is not used


@final
class HealthAnswer(msgspec.Struct, omit_defaults=True):
    """Whether the service runs (ok), or can rank (ready or starting); `problem` says that a new model is broken."""

    status: str
    model_version: str | None = None
    problem: str | None = None


@final
class ShadowAnswer(msgspec.Struct):
    """How the shadow model would have ranked, over all workers since the service began.

    `top_differs` and `order_differs` count requests; `mean_tau` is Kendall's tau between the two orders.
    """

    version: str
    requests: int
    dropped: int
    failed: int
    top_differs: int
    order_differs: int
    mean_tau: float | None
    mean_difference: float | None


@final
class EventsAnswer(msgspec.Struct):
    """A batch that is on disk, and in the log within seconds; the same key again counts once."""

    request_id: str
    key: str
    rows: int


EVENT_KEY: Final = r"^[A-Za-z0-9._:-]{1,128}$"
NDJSON: Final = b"application/x-ndjson"
SCHEMAS: Final = "#/components/schemas/"
STRUCTURES: Final = (RankRequest, RankAnswer, ModelsAnswer, HealthAnswer, ShadowAnswer, EventsAnswer, Details)
OPEN: Final = (400, 405, 500, 503)
GUARDED: Final = (*OPEN, 401)
WITH_BODY: Final = (*GUARDED, 408, 413, 415, 422)
TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}
OBJECT: Final = {"application/json": {"schema": {"type": "object"}}}
EVENT: Final = {
    "type": "object",
    "description": "An impression, a ranking or an interaction, with the columns of docs/reference/datamodel.md.",
    "required": ["time", "search_id"],
}
EVENTS: Final = {
    "application/json": {"schema": {"type": "array", "minItems": 1, "items": EVENT}},
    NDJSON.decode(): {"schema": EVENT},
}
KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same batch again under the same key counts once; by default the SHA-256 of the batch.",
    "schema": {"type": "string", "pattern": EVENT_KEY},
}


def document(settings: ServeSettings, *, token: bool) -> dict[str, Any]:
    """Return the OpenAPI document. `GET /v1/models` says which features a request needs."""

    def content(structure: type[msgspec.Struct], kind: bytes = b"application/json") -> dict[str, Any]:
        return {kind.decode(): {"schema": {"$ref": f"{SCHEMAS}{structure.__name__}"}}}

    def answer(summary: str, body: dict[str, Any], errors: tuple[int, ...], *, status: int = 200) -> dict[str, Any]:
        responses = {str(status): {"description": summary, "content": body}}
        problem = content(Details, CONTENT_TYPE)
        responses |= {str(each): {"description": HTTPStatus(each).phrase, "content": problem} for each in errors}
        return {"summary": summary, "responses": responses} | ({"security": []} if errors == OPEN else {})

    def body(taken: dict[str, Any]) -> dict[str, Any]:
        return {"required": True, "description": f"At most {settings.max_body:,} bytes.", "content": taken}

    rank = answer("Rank documents for a query", content(RankAnswer), WITH_BODY)
    events = answer("Put events into the log", content(EventsAnswer), (*WITH_BODY, 409), status=202)
    ready = answer("Whether the service can rank", content(HealthAnswer), OPEN)
    ready["responses"]["503"]["content"] |= content(HealthAnswer)
    paths: dict[str, Any] = {
        "/v1/rank": {"post": rank | {"requestBody": body(content(RankRequest))}},
        "/v1/events": {"post": events | {"requestBody": body(EVENTS), "parameters": [KEY]}},
        "/v1/models": {"get": answer("The models that answer", content(ModelsAnswer), GUARDED)},
        "/v1/shadow": {"get": answer("How the shadow model disagrees", content(ShadowAnswer), GUARDED)},
        "/metrics": {"get": answer("Metrics for Prometheus", TEXT, GUARDED)},
        "/healthz": {"get": answer("Whether the service runs", content(HealthAnswer), OPEN)},
        "/readyz": {"get": ready},
        "/openapi.json": {"get": answer("This document", OBJECT, OPEN)},
    }
    if settings.log is None:
        del paths["/v1/events"]
    if settings.shadow is None:
        del paths["/v1/shadow"]
    _, schemas = msgspec.json.schema_components(STRUCTURES, ref_template=f"{SCHEMAS}{{name}}")
    schemas["RankRequest"]["properties"]["documents"]["maxItems"] = settings.max_documents
    return {
        "openapi": "3.1.0",
        "info": {"title": "clickprism", "version": version("clickprism"), "summary": "Ranks documents by relevance."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}] if token else [],
    }
