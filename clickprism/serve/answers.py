"""What the service answers, one structure an answer; /openapi.json is made from them."""

from __future__ import annotations

from typing import Any, final

import msgspec


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
        observation: with `explain`: how likely each position is seen, relative to the first, where the model knows.
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
