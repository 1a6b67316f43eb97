"""Settings of bundles, exports, online stores and the service."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final

from clickprism.errors import SettingError
from clickprism.settings import check_fields

TOKEN_VARIABLE: Final = "CLICKPRISM_TOKEN"  # noqa: S105 - the name of the variable
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@final
@dataclass(frozen=True, kw_only=True)
class BundleSettings:
    """What a bundle contains besides the ranker.

    Attributes:
        name: Name of the bundle; by default the name of the run.
        imputed: For an approximation, read the imputed relevance of pairs from the online store (`store publish
            --imputed`). By default the mean of the training data is imputed.
        naive: Run or model trained on raw clicks, which the example queries are compared with.
        feature_names: File with the feature names, one per line or as a JSON list. By default the names of the run, or
            feature_1, feature_2, ...
        metrics: Metrics for the model card, such as `--metrics.nDCG@10 0.51`.
        notes: Notes for the model card; may be repeated.
        examples: Number of example queries for the page of the service; the log of the run is read or simulated again.
        replace: Replace an existing bundle in the same folder.
    """

    name: str = ""
    imputed: bool = False
    naive: Path | None = None
    feature_names: Path | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    examples: int = 0
    replace: bool = False

    def __post_init__(self) -> None:
        check_fields(self, examples=(0, None))
        if self.naive is not None and not self.examples:
            raise SettingError("naive", str(self.naive), "be given together with --examples")


@final
@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """How a ranker is described in another system.

    Attributes:
        name: Name of the model in the other system; by default the name of the folder.
        feature_set: Name of the feature set (Elasticsearch, OpenSearch) or feature store (Solr). Or a .json file with
            the answer of the engine to GET _ltr/_featureset/NAME: each feature of the ranker must exist there.
        requests: Also write requests.json, the requests that upload the model (Elasticsearch, OpenSearch).
        complete: Every document has a value for every feature. Needed by formats that cannot express missing values.
    """

    name: str | None = None
    feature_set: str = "clickprism"
    requests: bool = False
    complete: bool = False

    def __post_init__(self) -> None:
        for option, value in (("name", self.name), ("feature_set", self.feature_set)):
            if value is not None and not NAME.fullmatch(value) and not (option == "feature_set" and self.from_file):
                raise SettingError(option, value, "consist of letters, digits, _, - and .")

    @property
    def from_file(self) -> bool:
        """Whether the feature set is a file of the engine."""
        return self.feature_set.endswith(".json")


@final
@dataclass(frozen=True, kw_only=True)
class PublishSettings:
    """What is published to an online store.

    Attributes:
        features: Table of ranker features to publish: query_id, document_id and one column of numbers for each feature
            (.parquet, .csv or .jsonl).
        imputed: Table of imputed relevance to publish, written by `relevance impute apply`.
        estimates: Table with the clicks and exposure of pairs, written by `relevance estimate`. Bundles of `auto` join
            their scores with them.
        snapshot: Version of the snapshot of the log; by default the current one.
        as_of: Time of the features, from which their age is counted (UTC). By default the time of the snapshot, or the
            last change of the files.
        grace: Seconds for which the previous version is kept at least.
        memory: Maximum memory for sorting, such as 500MB or 2GB.
    """

    features: Path | None = None
    imputed: Path | None = None
    estimates: Path | None = None
    snapshot: int | None = None
    as_of: datetime | None = None
    grace: float = 3600.0
    memory: str = "1GB"

    def __post_init__(self) -> None:
        if self.as_of is not None and self.as_of.tzinfo is not None:
            object.__setattr__(self, "as_of", self.as_of.astimezone(UTC).replace(tzinfo=None))
        if not 1 <= self.grace < math.inf:
            raise SettingError("grace", self.grace, "be at least 1 second")
        if not re.fullmatch(r"[1-9]\d*(MB|GB)", self.memory):
            raise SettingError("memory", self.memory, "be such as 500MB or 2GB")


@final
@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """How a new bundle is released, and what decides.

    Attributes:
        shares: Shares of the requests that both bundles answer together, in order.
        stage_searches: Number of interleaved searches after which the next share is used, unless the new bundle has
            lost more of them than it won.
        planned_searches: Number of interleaved searches after which the new bundle is taken back if users have shown no
            preference.
        confidence: Confidence level of the interval for any number of looks.
    """

    shares: tuple[float, ...] = (0.01, 0.05, 0.2, 0.5, 1.0)
    stage_searches: int = 500
    planned_searches: int = 20_000
    confidence: float = 0.95

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip(self.shares, self.shares[1:], strict=False))
        if not self.shares or not rising or not 0 < self.shares[0] <= self.shares[-1] <= 1:
            raise SettingError("shares", self.shares, "be rising numbers above 0 and at most 1")
        check_fields(self, stage_searches=(1, None), planned_searches=(1, None))
        if not 0 < self.confidence < 1:
            raise SettingError("confidence", self.confidence, "be between 0 and 1")


@final
@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """What the service reads, where it listens, and its limits.

    Attributes:
        store: Online store with features and click vectors: a folder, or redis://host:port/0?prefix=name. Requests may
            then name documents by id only.
        log: Click log that receives the events posted to the service; it is created if it does not exist.
        project: Project whose status the page shows; by default the project that is served.
        shadow: Bundle that also scores every request, after it was answered; disagreements are counted.
        interleave: Bundle whose ranking is interleaved with the first (team draft).
        host: Address to listen on.
        port: Port to listen on; 0 chooses a free port.
        workers: Number of processes that answer requests.
        max_body: Maximum size of a request body, in bytes.
        max_documents: Maximum number of documents in a request.
        rerank_depth: Number of documents to re-rank, counted from the first of the request; the others stay below them,
            in the order of the request. 0 for no limit. By default the scope of the bundle.
        timeout: Seconds within which the body of a request must arrive, and then within which it must be answered.
        max_waiting: Maximum number of requests that a worker handles at the same time; others get status 503.
        token_file: File with the valid tokens, one per line. It is read again when it changes, so that a token can be
            added and an old one removed while the service runs.
        max_feature_age: Age in seconds after which features of the store are marked as stale; by default never.
        drain: Seconds for requests to finish when the service stops.

    >>> ServeSettings(port=70000)
    Traceback (most recent call last):
    clickprism.errors.SettingError: port must be from 0 to 65535, got 70000
    """

    store: str | None = None
    log: Path | None = None
    project: Path | None = None
    shadow: Path | None = None
    interleave: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    max_body: int = 4 << 20
    max_documents: int = 1000
    rerank_depth: int | None = None
    timeout: float = 10.0
    max_waiting: int = 256
    token_file: Path | None = None
    max_feature_age: float | None = None
    drain: float = 10.0

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("workers", "max_body", "max_documents", "max_waiting"), (1, None))
        check_fields(self, port=(0, 65535), rerank_depth=(0, None), **counts)
        for name in ("timeout", "max_feature_age", "drain"):
            if getattr(self, name) is not None and not 0 < getattr(self, name) < math.inf:
                raise SettingError(name, getattr(self, name), "be a number of seconds above 0")


def check_token(token: str | None, *, host: str) -> None:
    """Raise an error if a token cannot be sent in a header, or if there is none although other machines may connect.

    >>> check_token(None, host="0.0.0.0")
    Traceback (most recent call last):
    clickprism.errors.SettingError: no_auth must not be given when --host is not a loopback address, got '0.0.0.0'
    """
    if token is None:
        if not is_loopback(host):
            raise SettingError("no_auth", host, "not be given when --host is not a loopback address")
    elif not (token and token.isascii() and token.isprintable() and token == token.strip()):
        raise SettingError(TOKEN_VARIABLE, "...", "be printable ASCII, not empty, without spaces at its ends")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
