"""Which column of an impression log is what: by settings, or by the names that columns usually have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from clickprism.data.tables import Kind, Table
from clickprism.data.vocabulary import Column, Vocabulary
from clickprism.errors import DataError, SettingError
from clickprism.settings import suggest

ROLES: dict[str, tuple[str, ...]] = {
    "request": (
        "request",
        "request_id",
        "search",
        "search_id",
        "session",
        "session_id",
        "impression_id",
        "query",
        "query_id",
        "qid",
    ),
    "user": ("user", "user_id", "userid", "visitor_id", "client_id"),
    "item": ("item", "item_id", "itemid", "article_id", "product_id", "news_id", "document", "document_id", "doc_id"),
    "position": ("position", "pos", "rank", "slot"),
    "clicked": ("clicked", "click", "is_click", "label"),
    "seen": ("seen", "viewed", "observed", "in_view", "viewport"),
    "relevance": ("relevance", "grade"),
    "weight": ("weight", "click_weight"),
}
NEEDED = ("request", "item", "position", "clicked")
NAMED = ("request", "user", "item")
FLAGGED = ("clicked", "seen")


@dataclass(frozen=True, kw_only=True)
class ImpressionSettings:
    """Column names and options of an impression log.

    Attributes:
        request: Column of the request (one page of results); found by its name if not given: request_id, session, ...
        user: Column of the user; found by its name if not given: user_id, visitor_id, ... A log may have none.
        item: Column of the item or document; found by its name if not given: item_id, document_id, ...
        position: Column of the position; found by its name if not given: position, pos, rank, slot.
        clicked: Column with 1 where the item was clicked, else 0; found by its name if not given: clicked, click, ...
        seen: Column with 1 where the item was in view, else 0; found by its name if not given. A log may have none.
        relevance: Column with a grade, for evaluation only; found by its name if not given. A log may have none.
        weight: Column with the weight of a click; found by its name if not given. A log may have none.
        categorical: Columns that hold names even if they look like numbers. The user or the item may be among them, and
            is then a feature.
        numeric: Columns that hold numbers.
        ignore: Columns that are not features.
        lists: What becomes a list: each "request", or all requests of a "user" (each item must then always have the
            same features).
        first_position: Number of the first position, 0 or 1.
        least_count: Minimum number of rows in the training part for a name to be known; others are "unknown".
    """

    request: str | None = None
    user: str | None = None
    item: str | None = None
    position: str | None = None
    clicked: str | None = None
    seen: str | None = None
    relevance: str | None = None
    weight: str | None = None
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    lists: Literal["request", "user"] = "request"
    first_position: int = 1
    least_count: int = 1

    def __post_init__(self) -> None:
        if self.lists not in ("request", "user"):
            raise SettingError("lists", self.lists, "be 'request' or 'user'")
        if self.first_position not in (0, 1):
            raise SettingError("first_position", self.first_position, "be 0 or 1")
        if self.least_count < 1:
            raise SettingError("least_count", self.least_count, "be at least 1")
        several = [*self.categorical, *self.numeric, *self.ignore]
        twice = next((name for name in several if several.count(name) > 1), None)
        if twice is not None:
            raise SettingError("categorical", twice, "name a column once, in one of categorical, numeric and ignore")


def kinds(settings: ImpressionSettings, vocabulary: Vocabulary | None) -> Callable[[str], Kind]:
    """What the columns of a name hold, as far as settings and the vocabulary tell."""
    explicit = {getattr(settings, role): role for role in ROLES if getattr(settings, role) is not None}
    aliases = {alias: role for role, names in ROLES.items() for alias in names}

    def kind(name: str) -> Kind:
        alias = aliases.get(name.lower())
        role = explicit.get(name) or (alias if alias is not None and getattr(settings, alias) is None else None)
        if role is not None:
            return "names" if role in (*NAMED, *FLAGGED) else "numbers"
        if vocabulary is not None:
            return "none" if name not in vocabulary.columns else _held(vocabulary, name)
        if name in settings.categorical:
            return "names"
        if name in settings.numeric:
            return "numbers"
        return "none" if name in settings.ignore or alias is not None else "either"

    return kind


def _held(vocabulary: Vocabulary, name: str) -> Kind:
    return "numbers" if vocabulary.columns[name] is None else "names"


def roles_of(table: Table, settings: ImpressionSettings) -> dict[str, str]:
    """The column of each role that the log has."""
    roles: dict[str, str] = {}
    has = f"It has {', '.join([*table.header[:20], *(['...'] if len(table.header) > 20 else [])])}"
    for role, aliases in ROLES.items():
        name = getattr(settings, role)
        found = [column for column in table.header if column.lower() in aliases] if name is None else [name]
        if name is not None and name not in table.header:
            remedy = f"{has} ({suggest(name, table.header)})"
            raise DataError(f"has no column {name!r} for the {role}", file=table.file, line=1, remedy=remedy)
        if len(found) > 1:
            remedy = f"Choose one: --{role} {found[0]} (in train: --data.impressions.{role} {found[0]})"
            raise DataError(f"has {' and '.join(found)} for the {role}", file=table.file, line=1, remedy=remedy)
        if not found and (role in NEEDED or (role == "user" and settings.lists == "user")):
            remedy = f"{has}. Name it: --{role} NAME (in train: --data.impressions.{role} NAME)"
            problem = f"has no column for the {role} ({', '.join(aliases)})"
            raise DataError(problem, file=table.file, line=1, remedy=remedy)
        roles |= dict.fromkeys([role], found[0]) if found else {}
    taken = next((name for name in roles.values() if list(roles.values()).count(name) > 1), None)
    if taken is not None:
        raise SettingError("impressions", taken, "give each role a column of its own")
    for field in ("categorical", "numeric", "ignore"):
        for name in getattr(settings, field):
            if name not in table.header:
                remedy = f"{has} ({suggest(name, table.header)})"
                raise DataError(f"has no column {name!r}, named in {field}", file=table.file, line=1, remedy=remedy)
    return roles


def features_of(
    table: Table, roles: Mapping[str, str], settings: ImpressionSettings, vocabulary: Vocabulary | None
) -> dict[str, Column]:
    """The columns that are features, in the order of the file, or as in the vocabulary."""
    if vocabulary is not None:
        lacking = next((name for name in vocabulary.columns if name not in table.header), None)
        if lacking is not None:
            remedy = f"The training data had it; here are {', '.join(table.header)}"
            raise DataError(f"has no column {lacking!r}", file=table.file, line=1, remedy=remedy)
        return {name: table.columns[name] for name in vocabulary.columns}
    mixed = [name for role, name in roles.items() if role not in ("user", "item") and name in settings.categorical]
    if mixed:
        raise SettingError("categorical", mixed[0], "name features, the user or the item")
    used = set(roles.values()) - set(settings.categorical)
    return {name: column for name, column in table.columns.items() if name not in used}
