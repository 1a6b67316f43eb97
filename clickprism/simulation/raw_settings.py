"""Settings of simulated raw logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final, Literal, final

from clickprism.click_models.users import check_probability
from clickprism.errors import SettingError
from clickprism.settings import check_fields

Schema = Literal["clickprism", "ubi", "metarank"]
Format = Literal["jsonl", "csv", "parquet"]
Compression = Literal["zst", "gz", "none"]

DEFAULT_USER: Final = {"name": "ccm", "after_skip": 0.8, "after_irrelevant": 0.4, "after_relevant": 0.27}


@final
@dataclass(frozen=True, kw_only=True)
class RawLogSettings:
    """What a simulated raw log of a search engine contains.

    Attributes:
        searches: Number of searches by people on all days together. Searches by robots are added to it.
        days: Number of days.
        start: First day (UTC), such as 2024-01-01.
        schema: Fields of the rows: our own (clickprism, one row per shown document), OpenSearch UBI (ubi, queries and
            events) or Metarank (metarank, rankings and interactions).
        format: File format. The rows of ubi and metarank are nested and need jsonl.
        compress: Compression of jsonl and csv files. Parquet files are always compressed.
        files_per_day: Minimum number of files per day.
        ordinal_base: Number of the first position in ubi rows, 0 or 1.
        user: User model that decides what is observed and clicked: its name (pbm, ubm, cascade, dcm, ccm, dbn, sdbn,
            trust, coupled or popularity) and its parameters. Parameters without a name change the default model, ccm.
        trust: Strength of trust bias, from 0 (none) to 1 (the trust user model).
        queries: Number of distinct queries. 0 means one sixth of the searches, at most 200,000.
        exponent: Exponent of the query frequencies: the query of rank r is asked in proportion to r^-exponent.
        people: Number of people. 0 means one tenth of the searches.
        min_documents: Minimum number of documents per query.
        max_documents: Maximum number of documents per query.
        length: Maximum number of documents shown per search.
        page: Number of documents per page. A further page is shown only to users who look at it.
        rankers: Number of rankers. They replace each other gradually over the days, so that two always overlap.
        feedback: Weight of the clicks of earlier days in the ranking, from 0 (none) to 10.
        randomised: Share of searches whose first document is chosen at random.
        robots: Searches by robots, as a share of the searches by people.
        duplicate: Share of rows that are written twice, in the same file or a later one.
        late: Share of rows that arrive one to three days late.
        broken: Unreadable rows, as a share of all rows.
        without_id: Share of users whose rows have no event id.
        without_display: Share of users whose rows have no display time.
        items: Number of rows per day that describe documents instead of clicks (metarank only).
        features: Whether rows contain document features (view_1 to view_4). Not possible with csv and metarank.
        seed: Random seed. The same settings and seed write the same bytes.
    """

    searches: int = 10_000
    days: int = 30
    start: str = "2024-01-01"
    schema: Schema = "clickprism"
    format: Format = "jsonl"
    compress: Compression = "zst"
    files_per_day: int = 1
    ordinal_base: int = 1
    user: dict[str, Any] = field(default_factory=lambda: dict(DEFAULT_USER))
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
        check_fields(self, schema=Schema, format=Format, compress=Compression)
        check_fields(self, **dict.fromkeys(("searches", "days", "files_per_day", "page", "rankers"), (1, None)))
        check_fields(self, **dict.fromkeys(("queries", "people", "items", "seed"), (0, None)), ordinal_base=(0, 1))
        check_fields(self, length=(3, None), min_documents=(3, None), max_documents=(self.min_documents, None))
        check_fields(self, exponent=(0, 10), feedback=(0, 10))
        for name in ("trust", "randomised", "robots", "duplicate", "late", "broken", "without_id", "without_display"):
            check_probability(name, getattr(self, name))
        if self.schema != "clickprism" and self.format != "jsonl":
            must = f"be 'jsonl' with schema {self.schema!r}, because its rows are nested"
            raise SettingError("format", self.format, must)
        if self.features and (self.format == "csv" or self.schema == "metarank"):
            must = "be false with format 'csv' and with schema 'metarank', which have no field for features"
            raise SettingError("features", self.features, must)
        try:
            valid = (date.fromisoformat(self.start) + timedelta(days=self.days + 3)).year < 9000
        except (ValueError, OverflowError):
            valid = False
        if not valid:
            raise SettingError("start", self.start, "be a day such as 2024-01-01, and the last day before year 9000")
        if "name" not in self.user:
            object.__setattr__(self, "user", {**DEFAULT_USER, **self.user})

    def day(self, number: int) -> date:
        """Return the date of a day, counted from 0."""
        return date.fromisoformat(self.start) + timedelta(days=number)

    def midnight(self, number: int) -> int:
        """Return when a day begins, in µs since 1970.

        >>> RawLogSettings().midnight(1)
        1704153600000000
        """
        return (self.day(number) - date(1970, 1, 1)).days * 86_400_000_000


@final
@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Settings of the demo.

    Attributes:
        searches: Number of searches in the log.
        queries: Number of queries in the log.
        test_queries: Number of other queries, on which rankers are compared.
        candidates: Number of documents that the engine has for a query. It shows 10 of them.
        days: Number of days of the log.
        seed: Random seed.
    """

    searches: int = 40_000
    queries: int = 600
    test_queries: int = 1_000
    candidates: int = 40
    days: int = 14
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, searches=(100, None), queries=(20, None), test_queries=(10, None))
        check_fields(self, candidates=(10, None), days=(2, None), seed=(0, None))
