"""Adressa: a newspaper's log of who read which article and for how long, as judged lists (Gulla et al. 2017).

Files are JSON lines, an event each, one file a day (20170101, 20170102, ...), plain, gzip or zstd. InfoRank (appendix
B.1) makes grades of them so: the time a user u spent on an article d, over the article's mean,

    nv(u, d) = v(u, d) / mu(d)     (Eq. 27)

and the highest 20% of all nv are relevant. What the paper leaves open is decided here, and said: v is the sum over all
of the user's views of the article; mu is the mean of v over its readers, in the whole log, as labels are; a list holds
the articles that one user read in one part, so what is not relevant was opened and left soon; parts are cut by time, a
pair of user and article belonging where it was first read. Features are what is known when the page opens.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, final

import msgspec
import numpy as np

from clickprism.data.letor import OnError, PathLike
from clickprism.data.tables import expand, read_bytes, text_array
from clickprism.errors import DataError, SettingError
from clickprism.types import Dataset, Float32, Float64, Int64, JudgedLists, Lists, Text

SOURCE: Final = "NTNU and Adresseavisen (reclab.idi.ntnu.no/dataset), for research"
DAY: Final = re.compile(r"\d{8}(\.(json|jsonl|txt))?(\.(gz|zst))?")
ANY: Final = re.compile(r"[^.].*\.(json|jsonl)(\.(gz|zst))?")
PARTS: Final = ("train", "validation", "test")
LONGEST: Final = 1000  # characters of a name
MOST: Final = 10_000  # indicators of names


@dataclass(frozen=True)
class AdressaSettings:
    """How lists are made of events.

    Attributes:
        top: the share of all pairs of user and article that is relevant.
        shares: of the pairs that go to the training, validation and test part, by the time of first reading.
        least_readers: Exclude articles with fewer readers than this.
        identities: make the user and the article features of their own.
        least_count: names that occur less often in the training part are unknown ones.
    """

    top: float = 0.2
    shares: tuple[float, ...] = (0.7, 0.1, 0.2)
    least_readers: int = 1
    identities: bool = False
    least_count: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.top < 1:
            raise SettingError("top", self.top, "be between 0 and 1")
        if len(self.shares) != len(PARTS) or min(self.shares) <= 0 or not np.isclose(sum(self.shares), 1):
            raise SettingError("shares", self.shares, "be three, above 0, and add up to 1")
        for name in ("least_readers", "least_count"):
            if getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be at least 1")


@final
@dataclass(frozen=True)
class AdressaAccount:
    """What a folder of events holds.

    Attributes:
        files: how many.
        events: in all of them.
        without_article: Excluded events on pages that are no article, such as the front page.
        without_time: Other excluded events, without a reading time.
        duplicates: events that were there before, with the same id, user, article and time; they count once.
        broken: Lines that are no event, excluded if the settings allow it.
        users: who read an article.
        articles: that were read.
        pairs: of user and article.
        threshold: the normalised reading time from which on a pair is relevant.
        relevant: the share of pairs that are; above `top` where many pairs tie at the threshold.
    """

    files: int
    events: int
    without_article: int
    without_time: int
    duplicates: int
    broken: int
    users: int
    articles: int
    pairs: int
    threshold: float
    relevant: float


@final
@dataclass(frozen=True, eq=False)
class Adressa:
    """The data set, with an indicator for each frequent name, and an account of what was read.

    Attributes:
        names: Of the features: "device=Mobile" for an indicator, "hour" for a number.
    """

    dataset: Dataset
    names: tuple[str, ...]
    account: AdressaAccount

    @property
    def indicators(self) -> tuple[int, ...]:
        """Return which features are indicators."""
        return tuple(place for place, name in enumerate(self.names) if "=" in name)


@dataclass(frozen=True, eq=False)
class _Names:
    """A column of names: `values[codes]`."""

    codes: Int64
    values: list[str]

    def __getitem__(self, rows: Any) -> _Names:
        return _Names(self.codes[rows], self.values)

    def texts(self, what: str) -> Text:
        """Return the names row by row; one very long name among many, which would fill memory, is an error."""
        used, codes = np.unique(self.codes, return_inverse=True)
        return text_array([self.values[code] for code in used], codes, what=f"the column of {what}")


_Column: TypeAlias = _Names | Float64


def _encoded(columns: dict[str, _Column], train: Int64, least_count: int) -> tuple[Float32, tuple[str, ...]]:
    """Return numbers, and an indicator for each name that the training rows have so often; and their names."""
    parts: list[Float32] = []
    names: list[str] = []
    for name, column in columns.items():
        if isinstance(column, _Names):
            counts = np.bincount(column.codes[train], minlength=len(column.values))
            known = np.flatnonzero(counts >= least_count)
            names += [f"{name}={column.values[code]}" for code in known]
            if len(names) > MOST:
                remedy = "Set a higher least_count"
                raise DataError(f"indicators of names would be more than {MOST:,} features", remedy=remedy)
            parts.append((column.codes[:, None] == known).astype(np.float32))
        else:
            names.append(name)
            parts.append(column[:, None].astype(np.float32))
    return np.concatenate(parts, axis=1), tuple(names)


_Id: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST, pattern=r"\A[^\0]*\Z")]


class _Event(msgspec.Struct):
    """What is used of an event; the rest of the line is skipped."""

    userId: _Id  # noqa: N815
    time: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    id: _Id | None = None  # noqa: A003, RUF100
    documentId: _Id | None = None  # noqa: N815
    eventId: int | str | None = None  # noqa: N815
    activeTime: int | float | None = None  # noqa: N815
    category1: str | None = None
    publishtime: str | None = None
    title: str | None = None
    keywords: str | list[str] | None = None
    deviceType: str | None = None  # noqa: N815
    os: str | None = None
    city: str | None = None
    region: str | None = None
    country: str | None = None
    referrerHostClass: str | None = None  # noqa: N815


CONTEXT: Final = {
    "device": "deviceType",
    "os": "os",
    "city": "city",
    "region": "region",
    "country": "country",
    "referrer": "referrerHostClass",
}


class _Log:
    """Events as they come, names by number."""

    def __init__(self) -> None:
        self.names: dict[str, dict[str, int]] = {name: {} for name in ("user", "article", *CONTEXT)}
        self.codes = {name: array("q") for name in self.names}
        self.time, self.active = array("q"), array("d")
        self.articles: list[_Event] = []  # the first event of each article
        self.ids, self.has_id = array("q"), array("b")
        self.counts = dict.fromkeys(("events", "without_article", "without_time", "duplicates", "broken"), 0)

    def add(self, event: _Event) -> None:
        self.counts["events"] += 1
        article = event.id or event.documentId
        if not article:
            self.counts["without_article"] += 1
            return
        if event.activeTime is None or not 0 <= event.activeTime < 1e9:
            self.counts["without_time"] += 1
            return
        if article not in self.names["article"]:
            self.articles.append(event)
        self._name("user", event.userId)
        self._name("article", article)
        for name, field in CONTEXT.items():
            self._name(name, getattr(event, field) or "")
        self.time.append(event.time)
        self.active.append(event.activeTime)
        mark = blake2b(repr(event.eventId).encode(), digest_size=8).digest()
        self.ids.append(int.from_bytes(mark, "big", signed=True))
        self.has_id.append(event.eventId is not None)

    def once(self) -> Int64:
        """The events that were not there before, with the same id, user, article and time, in their order."""
        kinds = (self.ids, self.codes["user"], self.codes["article"], self.time)
        rows = np.flatnonzero(np.frombuffer(self.has_id, np.int8))
        keys = [np.frombuffer(each, np.int64)[rows] for each in kinds]
        order = np.lexsort(keys)  # stable: of those alike the first comes first
        again = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
        for key in keys:
            again &= np.diff(key[order]) == 0
        once = np.ones(len(self.time), dtype=np.bool_)
        once[rows[order[1:][again]]] = False
        self.counts["duplicates"] = int((~once).sum())
        return np.flatnonzero(once)

    def _name(self, column: str, value: str) -> None:
        numbers = self.names[column]
        self.codes[column].append(numbers.setdefault(value, len(numbers)))

    def column(self, name: str) -> _Names:
        return _Names(np.array(self.codes[name], dtype=np.int64), list(self.names[name]))


def load_adressa(
    folder: PathLike, *, settings: AdressaSettings | None = None, name: str = "adressa", on_error: OnError = "raise"
) -> Adressa:
    """Make judged lists of a folder of Adressa's events; the three parts are cut by time.

    Args:
        folder: where the files of the days are, at any depth.
        settings: how lists are made.
        name: of the data set.
        on_error: "raise" a `DataError` at the first line that is no event, or "quarantine" such lines: leave them out
            and count them.
    """
    settings = AdressaSettings() if settings is None else settings
    if on_error not in ("raise", "quarantine"):
        raise SettingError("on_error", on_error, "be one of 'raise', 'quarantine'")
    files, log = _files(Path(folder)), _Log()
    for file in files:
        for event in _events(file, on_error, log.counts):
            log.add(event)
    if not log.articles:
        remedy = f"Events need userId, time, id and activeTime. Get them from: {SOURCE}"
        raise DataError("has no event that says how long an article was read", file=folder, remedy=remedy)
    once = log.once()
    time, active = np.array(log.time, dtype=np.int64), np.array(log.active)
    user, article = log.column("user"), log.column("article")
    pairs = _Pairs(user.codes[once], article.codes[once], time[once], active[once], settings)
    first = once[pairs.first]
    if not len(first):
        must = f"be at most {int(pairs.readers.max(initial=0))} here, where no article has more readers"
        raise SettingError("adressa.least_readers", settings.least_readers, must)
    columns = _columns(log, time, first, settings.identities)
    cuts = np.quantile(time[first], np.cumsum(settings.shares)[:-1], method="higher")
    part = np.searchsorted(cuts, time[first], side="right")
    rows = [np.flatnonzero(part == place) for place in range(len(PARTS))]
    empty = next((each for each, chosen in zip(PARTS, rows, strict=True) if not len(chosen)), None)
    if empty is not None:
        raise DataError(f"has nothing for the {empty} part", file=folder, remedy="Give more days, or other shares")
    features, names = _encoded(columns, rows[0], settings.least_count)
    try:
        ids = user[first].texts("users"), article[first].texts("articles")
    except DataError as error:
        raise DataError(str(error), file=folder) from None
    judged = [_lists(features[chosen], pairs.grades[chosen], *(each[chosen] for each in ids)) for chosen in rows]
    account = AdressaAccount(
        files=len(files),
        **log.counts,
        users=len(np.unique(user.codes[first])),
        articles=len(np.unique(article.codes[first])),
        pairs=len(first),
        threshold=pairs.threshold,
        relevant=float(pairs.grades.mean()),
    )
    return Adressa(Dataset(name, *judged), names, account)


class _Pairs:
    """Each user with each article that he read.

    Attributes:
        first: the first event of each pair by time, [pairs].
        grades: 1 for the highest nv(u, d), [pairs].
        threshold: the lowest nv of those.
        readers: of each article.
    """

    def __init__(self, user: Int64, article: Int64, time: Int64, active: Float64, settings: AdressaSettings) -> None:
        order = np.argsort(time, kind="stable")
        key = user[order] * (int(article.max()) + 1) + article[order]
        _, first, pair = np.unique(key, return_index=True, return_inverse=True)
        spent = np.bincount(pair, weights=active[order])
        of = article[order][first]
        self.readers = np.bincount(of)
        mean = (np.bincount(of, weights=spent) / np.maximum(self.readers, 1))[of]
        normalised = np.divide(spent, mean, out=np.zeros(len(spent)), where=mean > 0)
        kept = self.readers[of] >= settings.least_readers
        self.first, normalised = order[first][kept], normalised[kept]
        top = max(1, round(settings.top * len(normalised)))
        self.threshold = float(np.sort(normalised)[-top]) if len(normalised) else 0.0
        self.grades = ((normalised >= self.threshold) & (normalised > 0)).astype(np.int32)


def _columns(log: _Log, time: Int64, first: Int64, identities: bool) -> dict[str, _Column]:
    """Features of each pair: of the article, and of the page view in which it was first read."""
    article = log.column("article")
    of = article.codes[first]
    categories = [(event.category1 or "").split("|") for event in log.articles]
    columns: dict[str, _Column] = {}
    if identities:
        columns |= {"user": log.column("user")[first], "article": article[first]}
    columns["category"] = _named([names[0] for names in categories])[of]
    columns["subcategory"] = _named(["|".join(names[1:]) for names in categories])[of]
    columns["keyword"] = _named([(_words(event.keywords) or [""])[0] for event in log.articles])[of]
    columns |= {name: log.column(name)[first] for name in CONTEXT}
    numbers: dict[str, Callable[[_Event], float]] = {
        "keywords": lambda event: len(_words(event.keywords)),
        "title_words": lambda event: len((event.title or "").split()),
    }
    for name, number in numbers.items():
        columns[name] = np.array([number(event) for event in log.articles], dtype=np.float64)[of]
    published = np.array([_seconds(event.publishtime) for event in log.articles])[of]
    columns["age_hours"] = np.maximum(time[first] - published, 0) / 3600
    columns["hour"] = (time[first] // 3600 % 24).astype(np.float64)
    columns["weekday"] = ((time[first] // 86400 + 3) % 7).astype(np.float64)
    return columns


def _lists(features: Any, grades: Any, users: Any, articles: Any) -> JudgedLists:
    """The pairs of each user as a list, users in the order of their ids, articles too."""
    order = np.lexsort((articles, users))
    known, starts = np.unique(users[order], return_index=True)
    offsets = np.concatenate([starts, [len(order)]]).astype(np.int64)
    return JudgedLists(Lists(features[order], offsets, known, articles[order]), grades[order])


def _named(values: Sequence[str]) -> _Names:
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(value, len(numbers)) for value in values]
    return _Names(np.array(codes, dtype=np.int64), list(numbers))


def _words(keywords: str | list[str] | None) -> list[str]:
    words = keywords.split(",") if isinstance(keywords, str) else keywords or []
    return [word.strip() for word in words if word.strip()]


def _seconds(text: str | None) -> float:
    """A time such as 2016-12-31T15:48:48.000Z in seconds since 1970, in UTC if it does not say; NaN without one."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return float("nan")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _files(folder: Path) -> list[Path]:
    """The files of the days, by name; without any such, all that end in .json or .jsonl."""
    there = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    for wanted in (DAY, ANY):
        found = [path for path in there if wanted.fullmatch(path.name)]
        if found:
            return sorted(found, key=lambda path: path.name)
    packed = any(path.name.endswith((".tar.gz", ".tar", ".zip")) for path in there)
    remedy = "Unpack the archive first" if packed else f"Get it from: {SOURCE}"
    raise DataError("has no file of events, such as 20170101", file=folder, remedy=remedy)


def _events(file: Path, on_error: OnError, counts: dict[str, int]) -> Iterator[_Event]:
    decode = msgspec.json.Decoder(_Event).decode
    raw = expand(read_bytes(file), file=file)
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if on_error == "raise":
                remedy = "Copy it again, or leave such lines out: data.on_error=quarantine"
                raise DataError(
                    f"is not an event of Adressa ({error})", file=file, line=number, remedy=remedy
                ) from None
            counts["broken"] += 1
