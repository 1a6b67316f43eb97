"""A table with one row for each result that was shown, as a log: queries, ranked lists, clicks, features.

`read_click_table` notes what it assumed where a column is missing, and counts every row that it could not use.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, final

import numpy as np

from clickprism.data.encoding import ABSENT, Encoding, days_of, is_numeric, numbers_of, texts_of
from clickprism.data.logged import ONLY_CLICKS, Logged, Outcomes
from clickprism.errors import DataError, SettingError
from clickprism.types import Bool, Clicks, Float64, Int32, Int64, Lists

if TYPE_CHECKING:
    import pyarrow as pa

OTHERS: Final = "all others"
Features: TypeAlias = Sequence[str] | Literal["all others"] | None
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "query": ("query", "query_text", "user_query", "q", "term", "keywords", "search_term", "query_id", "qid"),
    "document": (
        *("document", "document_id", "doc_id", "docid", "doc", "item", "item_id", "itemid", "product", "product_id"),
        *("sku", "asin", "article_id", "news_id", "prop_id", "hotel_id", "listing_id", "url"),
    ),
    "position": ("position", "rank", "pos", "slot", "ordinal"),
    "click": ("click", "clicked", "is_click", "is_clicked", "click_bool", "clicks"),
    "search": (
        *("search", "search_id", "srch_id", "request", "request_id", "impression_id", "serp_id", "list_id"),
        *("session", "session_id"),
    ),
    "time": ("time", "timestamp", "date_time", "datetime", "date", "day", "ts", "event_time"),
    "user": ("user", "user_id", "userid", "visitor_id", "client_id"),
    "randomised": ("randomised", "randomized", "random", "random_bool", "is_random"),
    "shown": ("shown", "is_shown", "displayed"),
    "ranker": ("ranker", "policy", "model_version", "variant"),
    "page": ("page", "page_number"),
    "seen": ("seen", "viewed", "in_view", "viewport"),
    "grade": ("grade", "relevance"),
    "weight": ("click_weight",),
}
"""The names that columns of each role usually have, the most usual first."""
IDS: Final = ("query", "document", "search", "user")
NO_FEATURES: Final = ("position", "click", "randomised", "shown", "ranker", "page", "seen", "grade", "weight")
"""Roles of columns that are never features: they describe how a document was shown, or what followed."""
OUTCOME_NAMES: Final = ("{}_bool", "is_{}", "{}_flag", "{}s", "{}ed")
"""The names that the column of an outcome usually has, if it is not the name of the outcome itself."""
TRUE: Final = ("1", "true", "t", "yes", "y", "1.0")
FALSE: Final = ("0", "false", "f", "no", "n", "0.0", "", "null", "nan", "none")
_TERM: Final = re.compile(r"(?:(\d+\.?\d*|\.\d+)\s*\*\s*)?([A-Za-z_]\w*(?:[- ]\w+)*)")
LEAK: Final = 0.95  # correlation of a feature with the click from which it is the click
LEAKS: Final = (
    "is almost always equal to the click",
    "has a value only where the document was clicked, so it is known too late",
)
FOLLOWERS: Final = 10  # rows with a value, all of them clicked, from which the value follows the click
LIKE_ID: Final = 0.5  # number of values over number of documents
MOST_POSITION: Final = 10_000
MOST_GRADE: Final = 1000


class ColumnNames(TypedDict, total=False):
    """Keyword arguments of `read_log`, which `auto` and `diagnose` take too."""

    query: str | None
    document: str | None
    position: str | None
    click: str | None
    features: Features
    search: str | None
    time: str | None
    user: str | None
    randomised: str | None
    shown: str | None
    ranker: str | None
    page: str | None
    seen: str | None
    grade: str | None
    weight: str | None
    outcomes: Sequence[str] | Mapping[str, str]
    ignore: Sequence[str]
    categorical: Sequence[str]
    sql: str | None


@final
@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which column of a table holds what; a role without a name is looked for among the usual names.

    Attributes:
        query: Column of the query, or of what else a list belongs to, such as a slot of a page.
        document: Column of the id of the document.
        position: Column of the position.
        click: Column that says whether the document was clicked: 1 and 0, or true and false.
        features: Names of the columns with features, or "all others" for all columns without a role.
        search: Column with the id of the search, the same for all results that were shown together.
        time: Column with the time or the day.
        user: Column with the user.
        randomised: Column that says whether the list was in random order.
        shown: Column that says whether the document was shown; other rows are candidates only.
        ranker: Column with the name of the ranker that made the list.
        page: Column with the number of the page, if positions start from 1 on each page.
        seen: Column that says whether the document was in view of the user.
        grade: Column with a relevance grade, a whole number from 0, for evaluation only.
        weight: Column with the weight of each click.
        outcomes: Columns with what followed a click, such as carts and bookings, by name of the outcome.
        ignore: Columns that are not features, if these are "all others".
        categorical: Features that are names of categories though they look like numbers, such as brand_id.
        codes: Make each category one feature of codes, for a ranker that embeds them.
    """

    query: str | None = None
    document: str | None = None
    position: str | None = None
    click: str | None = None
    features: Features = None
    search: str | None = None
    time: str | None = None
    user: str | None = None
    randomised: str | None = None
    shown: str | None = None
    ranker: str | None = None
    page: str | None = None
    seen: str | None = None
    grade: str | None = None
    weight: str | None = None
    outcomes: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    codes: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Columns:
        """Return the columns that keyword arguments name."""
        known = [each.name for each in fields(cls)]
        for name in values:
            if name not in known:
                nearest = ", ".join(difflib.get_close_matches(name, known, 5, 0.0))
                raise SettingError(name, values[name], f"be a known argument ({nearest})")
        given = dict(values)
        outcomes = given.get("outcomes") or {}
        outcomes = [outcomes] if isinstance(outcomes, str) else outcomes
        given["outcomes"] = dict(outcomes) if isinstance(outcomes, Mapping) else {name: name for name in outcomes}
        given |= {name: tuple(given.get(name) or ()) for name in ("ignore", "categorical")}
        features = given.get("features")
        if isinstance(features, str) and features != OTHERS:
            given["features"] = (features,)
        return cls(**given)

    def is_id(self, name: str) -> bool:
        """Return whether a column holds ids, which are texts also if they look like numbers."""
        given = [getattr(self, role) for role in IDS]
        usual = [each for role, column in zip(IDS, given, strict=True) if column is None for each in NAMES[role]]
        return name in given or name.lower() in usual

    def roles(self) -> dict[str, str]:
        """Return the column of each role that has one."""
        return {role: name for role in NAMES if (name := getattr(self, role)) is not None}

    def found_in(self, header: Sequence[str], source: object = None) -> Columns:
        """Return the columns with roles filled by usual names; a name that is not in the header is an error."""
        if (outcomes := _found_outcomes(self.outcomes, header)) != self.outcomes:
            return replace(self, outcomes=outcomes).found_in(header, source)
        named = {**self.roles(), **{f"outcome {name}": column for name, column in self.outcomes.items()}}
        chosen = () if self.features is None or isinstance(self.features, str) else self.features
        named |= {f"feature {name}": name for name in (*chosen, *self.ignore, *self.categorical)}
        wrong = {role: name for role, name in named.items() if name not in header}
        if wrong:
            role, name = next(iter(wrong.items()))
            nearest = ", ".join(difflib.get_close_matches(name, header, 5, 0.0))
            others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            typo = _meant_role(role.removeprefix("outcome ")) if role.startswith("outcome ") else ""
            raise DataError(
                f"has no column {name!r} for the {role}{others}",
                file=source,
                remedy=f"The nearest names are {nearest}{typo and f'. {typo}'}",
            )
        taken = {*named.values()}
        guessed: dict[str, str] = {}
        lower = {name.lower(): name for name in reversed(header)}
        for role, usual in NAMES.items():
            if getattr(self, role) is None:
                free = [lower[each] for each in usual if lower.get(each) not in (None, *taken)]
                if free:
                    guessed[role] = free[0]
                    taken.add(free[0])
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return Columns(**{**values, **guessed})

    def feature_names(self, header: Sequence[str]) -> list[str]:
        """Return the columns with features, in order."""
        if self.features is None:
            return []
        if self.features != OTHERS:
            refused = self.refused_features()
            return [name for name in self.features if name not in refused]
        used = {*self.roles().values(), *self.outcomes.values(), *self.ignore}
        return [name for name in header if name not in used]

    def refused_features(self) -> dict[str, str]:
        """Return why named features are not used: they say how a document was shown, or what followed."""
        if self.features is None or self.features == OTHERS:
            return {}
        roles = {name: role for role in NO_FEATURES if (name := getattr(self, role)) is not None}
        roles |= {column: name for name, column in self.outcomes.items()}
        return {name: f"is the column of the role {roles[name]}" for name in self.features if name in roles}


def _meant_role(outcome: str) -> str:
    """Return a question if the name of an outcome is almost that of a role; empty if it is not."""
    meant = difflib.get_close_matches(outcome, NAMES, 1, 0.8)
    return f"Did you mean the role {meant[0]}?" if meant else ""


def _found_outcomes(outcomes: Mapping[str, str], header: Sequence[str]) -> dict[str, str]:
    """Return the column of each outcome; one that is not in the header is looked for by the usual names."""
    found = {}
    for name, column in outcomes.items():
        usual = [each for form in OUTCOME_NAMES if (each := form.format(name)) in header]
        found[name] = usual[0] if column == name and column not in header and usual else column
    return found


def parse_outcome(text: str) -> dict[str, float]:
    """Return the weight of each outcome in a sum.

    >>> parse_outcome("click + 5*cart + 20 * purchase")
    {'click': 1.0, 'cart': 5.0, 'purchase': 20.0}
    """
    weights: dict[str, float] = {}
    for part in text.split("+"):
        found = _TERM.fullmatch(part.strip())
        if found is None or found[2] in weights:
            raise SettingError("outcome", text, "be an outcome such as booking, or a sum such as click + 5*cart")
        weights[found[2]] = float(found[1] or 1)
    if not any(weights.values()):
        raise SettingError("outcome", text, "have a weight above 0")
    return weights


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Which column of a table holds what, for logs that are tables: CSV, Parquet, databases.

    Attributes:
        map: Role and column of a table, such as position=rank; may be repeated. The roles are query, document,
            position, click, search, time, user, randomised, shown, ranker, page, seen, grade and weight; any other name
            is an outcome. A role that is not given is looked for among the usual names. A session file has the roles
            time, ranker and randomised.
        query: SQL query to a database, such as "select * from clicks". CSV and Parquet files are the table `log` in it.
        features: Column of a table that is a feature; may be repeated. By default all columns without a role.
        ignore: Column of a table that is not a feature; may be repeated.
        categorical: Feature of a table that is a category though it looks like a number; may be repeated.
    """

    map: tuple[str, ...] = ()
    query: str | None = None
    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for each in self.map:
            role, _, column = each.partition("=")
            if not role or not column:
                raise SettingError("map", each, "be a role and a column, such as position=rank")

    def __bool__(self) -> bool:
        return self != TableSettings()

    def options(self) -> list[str]:
        """Return the options that give these settings on the command line."""
        query = [] if self.query is None else ["--query", self.query]
        several = {"--map": self.map, "--features": self.features, "--ignore": self.ignore}
        several["--categorical"] = self.categorical
        return [*query, *(word for option, values in several.items() for each in values for word in (option, each))]

    def columns(self, outcome: str = "click") -> Columns:
        """Return the columns; names in the outcome that are not mapped are columns of the same name."""
        given = dict(each.split("=", 1) for each in self.map)
        outcomes = {name: column for name, column in given.items() if name not in NAMES}
        outcomes |= {name: name for name in parse_outcome(outcome) if name != "click" and name not in outcomes}
        return Columns.of(
            {
                **{role: column for role, column in given.items() if role in NAMES},
                "features": self.features or OTHERS,
                "ignore": self.ignore,
                "categorical": self.categorical,
                "outcomes": outcomes,
            }
        )


NO_TABLE: Final = TableSettings()


def read_click_table(
    table: pa.Table, columns: Columns, *, source: object = None, encoding: Encoding | None = None
) -> Logged:
    """Return a table of impressions as a log.

    Args:
        table: One row for each result that was shown, or that was a candidate.
        columns: Which column holds what.
        source: Name of the table for errors.
        encoding: How columns become features, as learned from another log; by default it is learned from this one.

    >>> import pyarrow as pa
    >>> shown = {"q": ["cat"] * 4, "sku": ["a", "b", "b", "a"], "rank": [1, 2, 1, 2], "clicked": [0, 1, 0, 0]}
    >>> log = read_click_table(pa.table(shown), Columns(query="q", document="sku", position="rank", click="clicked"))
    >>> log.clicks, log.clicks.lists.document_ids.tolist()
    (Clicks(2 ranked lists, 2 sessions, 1 clicks), ['a', 'b'])
    """
    return TableRows(table, columns, source).logged(encoding)


def _check_needed(table: pa.Table, columns: Columns, source: object) -> None:
    for role in ("document", "click"):
        if getattr(columns, role) is None:
            has = ", ".join(table.column_names[:20])
            remedy = f"Name it: {role}='...' in Python, --map {role}=... on the command line. It has {has}"
            if role == "click":
                remedy += ". A table of clicks alone is not enough: add the results that were shown and not clicked"
            problem = f"has no column for the {role} ({', '.join(NAMES[role][:6])})"
            raise DataError(problem, file=source, remedy=remedy)
    if not len(table):
        raise DataError("has no rows", file=source, remedy="Check how it was exported")


@final
class TableRows:
    """The rows of a table, what is wrong with each, and what was assumed."""

    def __init__(self, table: pa.Table, columns: Columns, source: object) -> None:
        columns = columns.found_in(table.column_names, source)
        _check_needed(table, columns, source)
        self.table, self.columns, self.source = table, columns, source
        self.notes = [
            f"The column {column!r} counts as the outcome {name!r}. {question}"
            for name, column in columns.outcomes.items()
            if (question := _meant_role(name))
        ]
        self.reason = np.zeros(len(table), dtype=np.int64)
        self.reasons = [""]
        self.account = {"rows": len(table)}
        self.document, self.documents = self._ids("document")
        self.query, self.queries = self._query()
        self.click = self.flag("click")
        self.shown = np.ones(len(table), dtype=np.bool_) if columns.shown is None else self.flag("shown")
        self.day = self._days()

    def logged(self, encoding: Encoding | None = None) -> Logged:
        """Return the log."""
        self.encoding = encoding
        lists_of_rows = self.list_of_rows()
        position = self.positions(lists_of_rows)
        self._quarantine(self.click & ~self.shown, "clicked, though the row says that it was not shown")
        lists_of_rows = self._without_repeats(lists_of_rows, position)
        seen = None if self.columns.seen is None else self.flag("seen")
        if seen is not None:
            self._quarantine(self.click & ~seen, "clicked, though the row says that it was not seen")
        weight = None if self.columns.weight is None else numbers_of(self._column("weight"))
        if weight is not None:
            self._quarantine(~(weight >= 0), "the weight is not a number of at least 0")
        usable = self.reason == 0
        shown = np.flatnonzero(usable & self.shown & (lists_of_rows >= 0))
        if not len(shown):
            raise DataError("has no usable row", file=self.source, remedy=self.unused() or "No row was shown")
        pairs, lists = self._pairs(usable, shown)
        order = shown[np.lexsort((position[shown], lists_of_rows[shown]))]
        _, sizes = np.unique(lists_of_rows[order], return_counts=True)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        clicks = Clicks(
            lists,
            offsets,
            pairs[order],
            position[order].astype(np.int32),
            self.click[order].astype(np.int64),
            np.ones(len(sizes), dtype=np.int64),
            None if weight is None else weight[order],
            None if seen is None else seen[order].astype(np.int64),
        )
        first = order[offsets[:-1]]
        ranker = None if self.columns.ranker is None else self._ids("ranker", needed=False)
        hit = self.click[order]
        followed = {name: self.outcome(name, order)[hit] for name in self.columns.outcomes}
        self._note_missing(clicks)
        for number, reason in enumerate(self.reasons[1:], start=1):
            if count := int((self.reason == number).sum()):
                self.account[f"rows not used, {reason}"] = count
        return Logged(
            clicks,
            None if self.day is None else self.day[first] - self.day[first].min(),
            None if ranker is None else ranker[0][first] + 1,
            () if ranker is None else ("not named", *ranker[1]),
            None if self.columns.randomised is None else self.flag("randomised")[order],
            () if self.encoding is None else self.encoding.names,
            account=self.account,
            encoding=self.encoding,
            notes=tuple(self.notes),
            outcomes=Outcomes(pairs[order][hit], followed) if followed else None,
            grades=None if self.columns.grade is None else self._grades(pairs),
        )

    def _column(self, role: str) -> pa.ChunkedArray:
        return self.table[getattr(self.columns, role)]

    def _quarantine(self, wrong: Bool, reason: str) -> None:
        """Do not use these rows; a row keeps its first reason."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        self.reason[wrong & (self.reason == 0)] = self.reasons.index(reason)

    def unused(self) -> str:
        """Return how many rows are not used for each reason."""
        counts = np.bincount(self.reason, minlength=len(self.reasons))
        return "; ".join(f"{count:,} rows: {self.reasons[n]}" for n, count in enumerate(counts) if n and count)

    def _ids(self, role: str, *, needed: bool = True) -> tuple[Int64, list[str]]:
        codes, texts = texts_of(self._column(role))
        if needed:
            self._quarantine(codes < 0, f"the {role} is missing")
        return codes, texts

    def _query(self) -> tuple[Int64, list[str]]:
        """Return the query of each row; texts are trimmed and case-folded, so that equal searches are one query."""
        if self.columns.query is None and self.columns.search is not None:
            self.notes.append(
                "No column has the query: each search is a separate query, so clicks on a document in different "
                "searches are not added up. For one slot of a page, name a column that has its name: query=."
            )
            return self._ids("search")
        if self.columns.query is None:
            self.notes.append("No column has the query: all lists belong to one. Name the context of a list: query=.")
            return np.zeros(len(self.table), dtype=np.int64), ["all"]
        codes, texts = self._ids("query")
        folded = [" ".join(text.split()).casefold() for text in texts]
        numbers: dict[str, int] = {}
        place = np.array([numbers.setdefault(text, len(numbers)) for text in folded] or [-1], dtype=np.int64)
        if len(numbers) < len(texts):
            same = len(texts) - len(numbers)
            self.notes.append(f"{same:,} spellings of queries differ in blanks or capital letters only: joined.")
        return np.where(codes < 0, -1, place[np.maximum(codes, 0)]), list(numbers)

    def flag(self, role: str) -> Bool:
        """Return a column of 1 and 0, true and false, or counts; a missing value is false."""
        codes, texts = texts_of(self._column(role))
        kinds = np.array([_truth(text) for text in texts] or [0], dtype=np.int64)
        values = np.where(codes < 0, 0, kinds[np.maximum(codes, 0)])
        self._quarantine(values < 0, f"the {role} is neither 1 nor 0, true nor false")
        return np.asarray(values > 0)

    def _days(self) -> Int64 | None:
        if self.columns.time is None:
            self.notes.append("No column has the time: all rows count as one day.")
            return None
        days = days_of(self._column("time"))
        self._quarantine(np.isnan(days), "the time cannot be read")
        return np.nan_to_num(np.floor(days)).astype(np.int64)

    def list_of_rows(self) -> Int64:
        """Return the number of the ranked list of each row, -1 for rows that are in none."""
        columns, used = self.columns, np.flatnonzero((self.reason == 0) & self.shown)
        result = np.full(len(self.table), -1, dtype=np.int64)
        if not len(used):
            return result
        query = self.query[used]
        if columns.search is not None:
            search, _ = self._ids("search")
            used = used[search[used] >= 0]
            result[used] = _numbered(search[used] * len(self.queries) + self.query[used])
            return result
        breaks = query[1:] != query[:-1]
        if columns.user is not None:
            user, _ = self._ids("user", needed=False)
            breaks |= user[used][1:] != user[used][:-1]
        if columns.position is not None:
            number = numbers_of(self._column("position"))[used]
            if columns.page is not None:
                number = number + numbers_of(self._column("page"))[used] * MOST_POSITION
            # consecutive rows of a query in which no position repeats are one list, in whatever order
            run = np.concatenate([[0], np.cumsum(breaks)])
            key = np.unique(np.stack([run, number]), axis=1, return_inverse=True)[1].ravel()
            repeats = np.bincount(run, weights=np.bincount(key)[key] > 1)[run] > 0
            with np.errstate(invalid="ignore"):
                breaks |= repeats[1:] & ~(number[1:] > number[:-1])
        result[used] = np.concatenate([[0], np.cumsum(breaks)])
        self.notes.append(
            "No column has the search: a list ends where the query changes, or where positions start again. This makes "
            f"{int(result.max()) + 1:,} lists."
        )
        return result

    def positions(self, lists_of_rows: Int64) -> Int64:
        """Return the position of each row, from 1."""
        if self.columns.position is None:
            order = np.argsort(lists_of_rows, kind="stable")
            start = np.searchsorted(lists_of_rows[order], lists_of_rows[order])
            position = np.empty(len(order), dtype=np.int64)
            position[order] = np.arange(len(order)) - start + 1
            self.notes.append("No column has the position: rows of a list are taken to be in the order shown.")
            return position
        values = numbers_of(self._column("position"))
        shown = lists_of_rows >= 0
        with np.errstate(invalid="ignore"):
            wrong = shown & ~((values >= 0) & (values <= MOST_POSITION) & (values == np.rint(values)))
        self._quarantine(wrong, f"the position is not a whole number from 0 to {MOST_POSITION:,}")
        position = np.where(wrong | ~shown, 1, np.nan_to_num(values)).astype(np.int64)
        shown = shown & (self.reason == 0)
        if shown.any() and position[shown].min() == 0:
            self.notes.append("Positions start from 0: 1 was added to each.")
            position += 1
        if self.columns.page is not None and shown.any():
            page = np.nan_to_num(numbers_of(self._column("page"))).astype(np.int64)
            size = int(position[shown].max())
            position = position + size * (page - page[shown].min())
            self.notes.append(f"Positions continue on the next page; a page has {size} positions.")
        return position

    def _without_repeats(self, lists_of_rows: Int64, position: Int64) -> Int64:
        """Return the list of each row: rows of one impression are joined, and a list has each position once."""
        used = np.flatnonzero((self.reason == 0) & (lists_of_rows >= 0))
        place = lists_of_rows * (int(position.max()) + 1) + position
        _, first, of = np.unique(
            np.stack([place[used], self.document[used]]), axis=1, return_index=True, return_inverse=True
        )
        original = used[first][of.ravel()]
        again = original != used
        self.click[original[again]] |= self.click[used[again]]
        result = lists_of_rows.copy()
        result[used[again]] = -1
        if again.any():
            self.account["rows joined, the same document at the same position of a search"] = int(again.sum())
        used = used[~again]
        occurrence = occurrences(place[used])
        if occurrence.any():
            searches = len(np.unique(result[used[occurrence > 0]]))
            result[used] = _numbered(result[used] * (int(occurrence.max()) + 1) + occurrence)
            self.notes.append(several_at_one_position(searches))
        wrong = np.zeros(len(result), dtype=np.bool_)
        wrong[used[occurrences(result[used] * len(self.documents) + self.document[used]) > 0]] = True
        self._quarantine(wrong, "the list has the document at an earlier row")
        return result

    def _pairs(self, usable: Bool, shown: Int64) -> tuple[Int64, Lists]:
        """Return the pair of each row (-1: not used), and the documents, each with the features of its last row."""
        rows = np.flatnonzero(usable & ((self.query >= 0) & (self.document >= 0)))
        rank = np.empty(max(len(self.documents), 1), dtype=np.int64)
        rank[sorted(range(len(self.documents)), key=self.documents.__getitem__)] = np.arange(len(self.documents))
        query = np.full(max(len(self.queries), 1), -1, dtype=np.int64)
        asked, first = np.unique(self.query[rows], return_index=True)
        query[asked[np.argsort(first)]] = np.arange(len(asked))
        key = query[self.query[rows]] * len(rank) + rank[self.document[rows]]
        keys, of = np.unique(key, return_inverse=True)
        pairs = np.full(len(self.table), -1, dtype=np.int64)
        pairs[rows] = of
        # features are those of the last row that was shown, by day and row; of candidates those of the last row
        is_shown = np.zeros(len(self.table), dtype=np.bool_)
        is_shown[shown] = True
        day = np.zeros(len(rows), dtype=np.int64) if self.day is None else self.day[rows]
        order = np.lexsort((rows, day, is_shown[rows]))
        last = np.zeros(len(keys), dtype=np.int64)
        last[of[order]] = rows[order]
        owner = keys // len(rank)
        offsets = np.searchsorted(owner, np.arange(len(asked) + 1)).astype(np.int64)
        names = np.array(self.queries, dtype=np.str_)[asked[np.argsort(first)]]
        features = self._features(last, pairs)
        return pairs, Lists(features, offsets, names, np.array(self.documents, dtype=np.str_)[self.document[last]])

    def _features(self, last: Int64, pairs: Int64) -> Any:
        """Return the features of each pair, [pairs, columns], and keep how they are encoded."""
        if self.encoding is not None:
            return self.encoding.apply(self.table.take(last))
        names = self.columns.feature_names(self.table.column_names)
        if not names:
            used = {*self.columns.roles().values(), *self.columns.outcomes.values()}
            others = [name for name in self.table.column_names if name not in used]
            if others:
                shown = ", ".join(others[:8]) + (", ..." if len(others) > 8 else "")
                self.notes.append(
                    f'No features were named, and a ranker needs them. features="{OTHERS}" uses all other columns: '
                    f"{shown}."
                )
            return np.zeros((len(last), 0), dtype=np.float32)
        table = self.table.select(names).take(last)
        encoding = Encoding.learn(table, names, categorical=self.columns.categorical, codes=self.columns.codes)
        there = pairs >= 0
        clicked = self.click[there]
        leaks: dict[str, str] = {}
        numbers = [feature.name for feature in encoding.features if feature.kind == "number"]
        rare = [name for name, why in encoding.ignored.items() if why == ABSENT and is_numeric(table[name].type)]
        for name in (*numbers, *rare):
            values = numbers_of(self.table[name])[there]
            if _correlation(values, clicked) > LEAK:
                leaks[name] = LEAKS[0]
            elif _follows(values, clicked):
                leaks[name] = LEAKS[1]
            elif name in numbers and self.columns.features == OTHERS and _is_id(name, numbers_of(table[name])):
                leaks[name] = "looks like an id by its name and values"
        kept = tuple(feature for feature in encoding.features if feature.name not in leaks)
        self.encoding = Encoding(kept, {**self.columns.refused_features(), **encoding.ignored, **leaks})
        self.notes += self.encoding.notes()
        return self.encoding.apply(table)

    def _grades(self, pairs: Int64) -> Int32:
        """Return the grade of each pair, that of its last row; 0 where none is known."""
        values = numbers_of(self._column("grade"))
        known = np.isnan(values) | ((values >= 0) & (values <= MOST_GRADE) & (values == np.rint(values)))
        if not known.all():
            row = int(np.argmin(known))
            problem = f"column {self.columns.grade!r} has {values[row]:g} in row {row + 1}, which is not a grade"
            raise DataError(problem, file=self.source, remedy=f"Give whole numbers from 0 to {MOST_GRADE:,}")
        grades = np.zeros(int(pairs.max()) + 1, dtype=np.int32)
        rows = np.flatnonzero((pairs >= 0) & ~np.isnan(values))
        grades[pairs[rows]] = values[rows]
        return grades

    def outcome(self, name: str, order: Int64) -> Float64:
        """Return an outcome of each row in this order; outcomes without a click are counted."""
        codes, texts = texts_of(self.table[self.columns.outcomes[name]])
        numbers = [float(max(_truth(text), 0)) if text.lower() in (*TRUE, *FALSE) else _number(text) for text in texts]
        values = np.where(codes < 0, 0.0, np.array(numbers or [0.0])[np.maximum(codes, 0)])[order]
        if alone := int(((values != 0) & ~self.click[order]).sum()):
            self.account[f"{name} without a click, not counted"] = alone
        return values

    def _note_missing(self, clicks: Clicks) -> None:
        if self.columns.user is None:
            self.notes.append("No column has the user: the minimum number of users of a pair (--min-users) is off.")
        unshown = clicks.lists.documents - len(np.unique(clicks.rows))
        if self.columns.shown is not None:
            self.notes.append(f"{unshown:,} query-document pairs are candidates that were never shown.")
        if clicks.clicks.all():
            self.notes.append(ONLY_CLICKS)
        if unused := int((self.reason > 0).sum()):
            self.notes.append(f"{unused:,} of {len(self.table):,} rows were not used. {self.unused()}.")


def _truth(text: str) -> int:
    """Return 1 for true or a count above 0, 0 for false or missing, -1 for anything else."""
    word = text.strip().lower()
    if word in TRUE or word in FALSE:
        return int(word in TRUE)
    number = _number(word)
    return -1 if number < 0 or (number == 0 and word.strip("0.")) else int(number > 0)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if np.isfinite(value) else 0.0


def _numbered(codes: Int64) -> Int64:
    """Return codes as numbers from 0 in the order of first appearance."""
    _, first, of = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[of])


def occurrences(codes: Int64) -> Int64:
    """Return how often each code occurred before, in the order of the rows.

    >>> occurrences(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(codes, kind="stable")
    result = np.empty(len(codes), dtype=np.int64)
    result[order] = np.arange(len(codes)) - np.searchsorted(codes[order], codes[order])
    return result


def several_at_one_position(searches: int) -> str:
    """Return a note about searches that are several lists."""
    why = "as after a filter or another order of the results: they count as several lists."
    return f"{searches:,} searches have several documents at one position, {why}"


def _correlation(values: Float64, clicked: Bool) -> float:
    there = ~np.isnan(values)
    values, hits = values[there], clicked[there].astype(np.float64)
    if len(values) < 2 or values.std() == 0 or hits.std() == 0:
        return 0.0
    return float(abs(np.corrcoef(values, hits)[0, 1]))


def _follows(values: Float64, clicked: Bool) -> bool:
    """Return whether only clicked rows have values other than 0, and enough rows do that this is not chance."""
    there = np.nan_to_num(values) != 0
    return int(there.sum()) >= FOLLOWERS and bool(clicked[there].all()) and not bool(clicked.all())


def _is_id(name: str, values: Float64) -> bool:
    """Return whether a column of numbers is an id: by its name, and by whole values that rarely repeat."""
    there = values[~np.isnan(values)]
    named = name.lower() == "id" or name.lower().endswith(("_id", " id", "uuid", "guid"))
    return named and bool((there == np.rint(there)).all()) and len(np.unique(there)) > LIKE_ID * len(there)


def text_rows(table: pa.Table, columns: Columns, number: int = 5) -> list[Mapping[str, str]]:
    """Return the first rows of a table by role, to show how a mapping reads them."""
    roles = columns.roles()
    return [{role: str(row[name]) for role, name in roles.items()} for row in table.slice(0, number).to_pylist()]
