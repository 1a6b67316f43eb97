"""What a simulated raw log is like: how much of everything there is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final, Literal, final, get_args

from clickprism.errors import SettingError
from clickprism.settings import build, override, read_toml
from clickprism.users.base import check_probability

Format = Literal["jsonl", "csv", "parquet"]
Compression = Literal["zst", "gz", "none"]
Schema = Literal["clickprism", "ubi", "metarank"]

SHARES: Final = ("randomised", "robots", "duplicate", "late", "broken", "without_id", "without_display", "trust")
READER: Final = {"name": "ccm", "after_skip": 0.8, "after_irrelevant": 0.4, "after_relevant": 0.27}


@final
@dataclass(frozen=True)
class RawLogSettings:
    """A raw log of a search engine, day by day.

    Attributes:
        searches: of people, in all days together; those of robots come on top.
        days: how many.
        start: the first day.
        schema: the fields of the rows: our own (a row a document shown), OpenSearch UBI (queries and events) or
            Metarank (rankings and interactions).
        format: "jsonl", "csv" or "parquet"; UBI and Metarank rows are nested, so they are "jsonl".
        compress: "zst", "gz" or "none"; Parquet compresses by itself.
        files_per_day: into how many files the rows of a day go, at least.
        ordinal_base: what UBI calls the first position, 0 or 1.
        user: who looks and clicks: `name` of a user model, and its settings.
        trust: how far people believe what stands high: the believed attraction is this share of `TrustUser`'s.
        queries: how many different ones; 0 for a sixth of the searches, at most 200,000.
        exponent: how uneven they are asked: the probability of the query of rank r is about r^-exponent.
        people: how many; 0 for a tenth of the searches.
        min_documents: that a query finds, at least.
        max_documents: the same, at most.
        length: how many of them can be shown.
        page: how many stand on a page; the next one is shown only to who looks there.
        rankers: how many versions there are: each gives way to the next, step by step, so two are always side by side.
        feedback: how far documents rise with the clicks of earlier days.
        randomised: the share of searches whose first slot is filled at random.
        robots: the searches of robots, as a share of those of people.
        duplicate: the share of rows that are written twice, in the same file or a later one.
        late: the share of rows that come one to three days late.
        broken: lines that no reader can take, as a share of the rows.
        without_id: the share of clients whose rows have no event id.
        without_display: the share of clients that measure no time on screen.
        items: rows a day about documents rather than clicks (Metarank only).
        features: whether rows tell what a ranker may learn from: the features of the document for the query, `view_1`
            to `view_4`; not in CSV, nor with Metarank.
        seed: the same seed gives the same bytes.
    """

    searches: int = 10_000
    days: int = 30
    start: str = "2024-01-01"
    schema: Schema = "clickprism"
    format: Format = "jsonl"
    compress: Compression = "zst"
    files_per_day: int = 1
    ordinal_base: int = 1
    user: dict[str, Any] = field(default_factory=lambda: dict(READER))
    trust: float = 0.3
    queries: int = 0
    exponent: float = 0.9
    people: int = 0
    min_documents: int = 4
    max_documents: int = 30
    length: int = 20
    page: int = 10
    rankers: int = 3
    feedback: float = 0.25
    randomised: float = 0.05
    robots: float = 0.02
    duplicate: float = 0.01
    late: float = 0.01
    broken: float = 0.001
    without_id: float = 0.3
    without_display: float = 0.1
    items: int = 20
    features: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("searches", 1), ("days", 1), ("files_per_day", 1), ("page", 1), ("rankers", 1)):
            self._check(name, getattr(self, name) >= least, f"be at least {least}")
        for name in ("queries", "people", "items", "seed"):
            self._check(name, getattr(self, name) >= 0, "be at least 0")
        self._check("min_documents", self.min_documents >= 3, "be at least 3")
        self._check("max_documents", self.max_documents >= self.min_documents, "be at least min_documents")
        self._check("length", self.length >= 3, "be at least 3")
        self._check("ordinal_base", self.ordinal_base in (0, 1), "be 0 or 1")
        for name in ("exponent", "feedback"):
            self._check(name, 0 <= getattr(self, name) <= 10, "be from 0 to 10")
        for name in SHARES:
            check_probability(name, getattr(self, name))
        for name, options in (("schema", Schema), ("format", Format), ("compress", Compression)):
            self._check(name, getattr(self, name) in get_args(options), f"be one of {', '.join(get_args(options))}")
        nested = self.schema == "clickprism" or self.format == "jsonl"
        self._check("format", nested, f"be 'jsonl' with schema {self.schema!r}, whose rows are nested")
        told = self.format != "csv" and self.schema != "metarank"
        self._check(
            "features", told or not self.features, "be false in CSV and with Metarank, which have no place for it"
        )
        self._check("start", self._is_day(), "be a day such as 2024-01-01, early enough for all days to be before 9000")

    def _is_day(self) -> bool:
        try:
            return (date.fromisoformat(self.start) + timedelta(days=self.days + 3)).year < 9000
        except (ValueError, OverflowError):
            return False

    def _check(self, name: str, holds: bool, must: str) -> None:
        if not holds:
            raise SettingError(name, getattr(self, name), must)

    def day(self, number: int) -> date:
        """The day of this number, from 0."""
        return date.fromisoformat(self.start) + timedelta(days=number)

    def midnight(self, number: int) -> int:
        """When the day of this number begins, in µs since 1970.

        >>> RawLogSettings().midnight(1)
        1704153600000000
        """
        return (self.day(number) - date(1970, 1, 1)).days * 86_400_000_000


def read_raw_settings(
    config: Path | None = None, assignments: Sequence[str] = (), *, flags: Mapping[str, Any] | None = None
) -> RawLogSettings:
    """The settings of a TOML file, of flags and of words such as "robots=0", in this order.

    >>> read_raw_settings(None, ["robots=0", "user.after_skip=.5"], flags={"days": 7, "seed": None}).user["name"]
    'ccm'
    """
    values: dict[str, Any] = {} if config is None else read_toml(config)
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    values = override(values, assignments)
    user = values.get("user")
    if isinstance(user, Mapping) and "name" not in user:
        values["user"] = {**READER, **user}
    return build(RawLogSettings, values)
