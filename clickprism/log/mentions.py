"""Which broken rows name a user: what `forget` takes out of quarantine.

A row that is a JSON object is asked for its user: `user_id`, `client_id`, `user`, or what the mapping calls it; one
without any is asked for all its texts. In any other row the id must stand as a word of its own, in any way that CSV or
JSON may spell it, so that `u1` is found in neither `u12` nor `u1.5`. Where that is in doubt, as of a bare number in a
line of CSV, the row goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS: Final = ("raw", "reason")
FIELDS: Final = ("user_id", "client_id", "user")
_LETTER: Final = rb"[A-Za-z0-9_\x80-\xff-]"
_JOINT: Final = rb"[.@:]"


class Mentions:
    """Finds the rows of quarantine that name one of these users.

    Args:
        users: their ids.
        fields: more names of the field that holds the user, such as the mapping's; with dots into objects.

    >>> found = Mentions(["u1"])
    >>> found.in_row(b'{"user_id": "u1", "position": "x"}'), found.in_row(b'{"user_id": "u2", "document_id": "u1"}')
    (True, False)
    >>> found.in_row(b"s,u1,3"), found.in_row(b"s,u1.5,3")
    (True, False)
    """

    def __init__(self, users: Iterable[str], *, fields: Iterable[str] = ()) -> None:
        self._users = {*users}
        self._fields = {*FIELDS, *fields}
        self._forms = sorted({form for user in self._users for form in _spelled(user)})
        joined = b"|".join(re.escape(form) for form in self._forms)
        self._word = re.compile(
            rb"(?<!%b)(?<!%b%b)(?:%b)(?!%b|%b%b)" % (_LETTER, _LETTER, _JOINT, joined, _LETTER, _JOINT, _LETTER)
        )

    def in_batch(self, batch: pa.RecordBatch) -> Any:
        """Which rows of a batch with the columns raw and reason name a user, [rows]."""
        columns = [batch.column(name).cast(pa.large_binary()) for name in COLUMNS]
        maybe = np.zeros(batch.num_rows, dtype=bool)
        for values in columns:
            for form in (*self._forms, b"\\"):
                maybe |= pc.fill_null(pc.match_substring(values, form), False).to_numpy(zero_copy_only=False)
        named = np.zeros(batch.num_rows, dtype=bool)
        for row in np.flatnonzero(maybe):
            raw, reason = (values[int(row)].as_py() or b"" for values in columns)
            named[row] = self.in_row(raw, reason)
        return named

    def in_row(self, raw: bytes, reason: bytes = b"") -> bool:
        """Whether a row names a user."""
        try:
            found = json.loads(raw, object_pairs_hook=tuple)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, tuple):
            return any(self._word.search(text) for text in (raw, reason))
        leaves = list(_leaves(found))
        theirs = [
            value for path, value in leaves if path in self._fields or path.rpartition(".")[2] in self._fields
        ] or [value for _, value in leaves if isinstance(value, str)]
        return any(str(value) in self._users for value in theirs)


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The values of a JSON object, each with the names that lead to it; objects are tuples of pairs."""
    if isinstance(value, tuple):
        for name, each in value:
            yield from _leaves(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, path)
    elif value is not None:
        yield path, value


def _spelled(user: str) -> Sequence[bytes]:
    """The ways in which a text may hold an id.

    >>> _spelled('a"b')[:3] == [b'a"b', b'a""b', bytes([97, 92, 34, 98])]
    True
    """
    ascii_ = json.dumps(user)[1:-1]
    capitals = re.sub(r"(?<=\\u)[0-9a-f]{4}", lambda digits: digits[0].upper(), ascii_)
    forms = [user, user.replace('"', '""'), ascii_, capitals, json.dumps(user, ensure_ascii=False)[1:-1]]
    forms += [form.replace("/", r"\/") for form in forms]
    other = [user.encode("latin-1")] if all(ord(letter) < 256 for letter in user) else []
    return [*(form.encode(errors="surrogateescape") for form in forms), *other]
