"""The OpenAPI document: made from the very structures that read and write the bodies, and tightened to what is served.

Which features a request may or must give depends on the model and the store, so the document is made when it is asked
for: a request that it allows is answered, one that it forbids is refused.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

import msgspec

from clickprism.serve import answers, intake, problems, requests
from clickprism.serve.live import Live
from clickprism.serve.models import Models
from clickprism.serve.settings import ServeSettings

SCHEMAS: Final = "#/components/schemas/"
STRUCTURES: Final = (
    requests.RankRequest,
    answers.RankAnswer,
    answers.ModelsAnswer,
    answers.HealthAnswer,
    answers.ShadowAnswer,
    intake.EventsAnswer,
    problems.Details,
)
ANYWHERE: Final = (401, 405, 500, 503)
WITH_BODY: Final = (*ANYWHERE, 400, 408, 413, 415, 422)
EVENT: Final = {
    "type": "object",
    "description": "An impression, a ranking or an interaction, with the columns of docs/datamodel.md.",
    "required": ["time", "search_id"],
}
BATCH: Final = {"type": "array", "minItems": 1, "description": f"Events, each: {EVENT['description']}"}


def document(settings: ServeSettings, models: Models, *, token: bool) -> dict[str, Any]:
    """The document of this service as it is now."""
    _, schemas = msgspec.json.schema_components(STRUCTURES, ref_template=f"{SCHEMAS}{{name}}")
    _tighten(schemas, settings, models)
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
        answered = _operation(summary, path, _json("HealthAnswer"), errors=(405, 500), open_to_all=True)
        unready = {"description": "Not yet, or too busy", "content": _json("HealthAnswer") | _problem()}
        answered["responses"]["503"] = unready
        paths[f"/{path}"] = {"get": answered}
    whole = {"application/json": {"schema": {"type": "object"}}}
    paths["/openapi.json"] = {
        "get": _operation("This document", "openapi", whole, errors=(405, 500, 503), open_to_all=True)
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "clickprism",
            "version": version("clickprism"),
            "summary": "Ranks by what clicks say of relevance.",
        },
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}] if token else [],
    }


def _operation(
    summary: str, name: str, content: dict[str, Any], *, errors: tuple[int, ...] = ANYWHERE, open_to_all: bool = False
) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": summary, "content": content}}
    for status in sorted(errors):
        responses[str(status)] = {"description": problems.phrase(status), "content": _problem()}
    made: dict[str, Any] = {"operationId": name, "summary": summary, "responses": responses}
    return made | {"security": []} if open_to_all else made


def _events(limit: str) -> dict[str, Any]:
    made = _operation("Put events into the log", "events", _json("EventsAnswer"), errors=(*WITH_BODY, 409))
    header = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "pattern": intake.KEY}}
    header["description"] = "The same batch again under the same key counts once; by default, its SHA-256."
    batch = {"application/json": {"schema": BATCH}}
    lines = {intake.NDJSON.decode(): {"schema": EVENT | {"description": "An event a line"}}}
    made["parameters"] = [header]
    made["requestBody"] = {"required": True, "description": limit, "content": batch | lines}
    return made


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"{SCHEMAS}{name}"}}}


def _problem() -> dict[str, Any]:
    return {problems.CONTENT_TYPE.decode(): {"schema": {"$ref": f"{SCHEMAS}Details"}}}


def _tighten(schemas: dict[str, Any], settings: ServeSettings, models: Models) -> None:
    """Say in the schema of a request what the model that answers asks of it."""
    request, one = schemas["RankRequest"], schemas["Document"]
    request["properties"]["documents"]["maxItems"] = settings.max_documents
    live = models.current.live
    if live is None:
        return
    if live.rerank_depth is not None:
        words = (
            f"In the engine's order: only the first {live.rerank_depth:,} are re-ranked, the others stay below them."
        )
        request["properties"]["documents"]["description"] = words
    if live.needs_features:
        names = live.scorer.feature_names
        size = {"minItems": len(names), "maxItems": len(names)}
        features = _given(one["properties"]["features"])
        features.update(size)
        if live.refuses_missing:
            features["items"] = _given(features["items"])
        order = {"type": "array", "uniqueItems": True, "items": {"enum": list(names)}, **size}
        request["properties"]["feature_names"] = {"anyOf": [order, {"type": "null"}], "default": None}
    _require(request, one, live, stored=models.stores(live))


def _require(request: dict[str, Any], one: dict[str, Any], live: Live, *, stored: bool) -> None:
    """Demand of a request what nothing else can give."""
    ids = request["properties"]["query_id"]
    documents = request["properties"]["documents"]
    if live.needs_texts:
        request["required"] = sorted({*request["required"], "query"})
        request["properties"]["query"] = _given(request["properties"]["query"])
        one["properties"]["text"] = _given(one["properties"]["text"])
        one["required"] = sorted({*one["required"], "text"})
    if live.needs_features and not stored:
        one["properties"]["features"] = _given(one["properties"]["features"])
        one["required"] = sorted({*one["required"], "features"})
    if live.needs_texts or (live.needs_features and not stored):
        documents["items"] = {"$ref": f"{SCHEMAS}Document"}
    by_id = {"required": ["query_id"], "properties": {"query_id": _given(ids)}}
    whole = {
        "allOf": [
            {"$ref": f"{SCHEMAS}Document"},
            {"required": ["features"], "properties": {"features": {"type": "array"}}},
        ]
    }
    if live.needs_clicks:
        request.update(required=sorted({*request["required"], "query_id"}))
        request["properties"]["query_id"] = _given(ids)
    elif live.needs_features and stored:
        request["anyOf"] = [by_id, {"properties": {"documents": {"items": whole}}}]


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """What a field that may be null holds when it is not."""
    found: dict[str, Any] = next((each for each in schema.get("anyOf", ()) if each.get("type") != "null"), schema)
    return found
