"""What a request to rank says, and how its body is read; docs/serving.md and /openapi.json say the same."""

from __future__ import annotations

from typing import Annotated, Final, cast, final

import msgspec
from msgspec import Meta

from clickprism.serve.problems import UNREADABLE, Problem, malformed

LARGEST: Final = 1e15
"""Of a feature's value: more loses its meaning in 32 bits, and a network may overflow on it."""
LONGEST_ID: Final = 512
LONGEST_TEXT: Final = 100_000
MOST: Final = 1_000_000

Id = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
Text = Annotated[str, Meta(max_length=LONGEST_TEXT)]
Value = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


@final
class Document(msgspec.Struct, forbid_unknown_fields=True):
    """A document with what the request knows of it; the store has the rest.

    Attributes:
        id: as the store and the log have it.
        features: in the order of `feature_names`, or of the model; null where one is missing.
        text: for rankers that read.
    """

    id: Id
    features: list[Value | None] | None = None
    text: Text | None = None


@final
class RankRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One query and the documents to rank for it.

    Attributes:
        documents: ids, or objects with features or texts, in the order of the search engine: a service with a re-rank
            depth reorders only the first of them.
        query_id: as the store and the log have it.
        query: its text, for rankers that read.
        feature_names: the order of the features in this request; the model's, where it is not said.
        explain: say what each score is made of.
        top: how many items to answer with; all, where it is not said.
    """

    documents: Annotated[list[Id | Document], Meta(min_length=1)]
    query_id: Id | None = None
    query: Text | None = None
    feature_names: list[str] | None = None
    explain: bool = False
    top: Annotated[float, Meta(ge=1, le=MOST, multiple_of=1)] | None = None

    def ids(self) -> tuple[list[str], bool]:
        """The ids of the documents in the order of the request, and whether there is nothing but ids."""
        if set(map(type, self.documents)) == {str}:
            return cast("list[str]", self.documents), True
        return [each if isinstance(each, str) else each.id for each in self.documents], False


_DECODER: Final = msgspec.json.Decoder(RankRequest)


def read_rank_request(body: bytes, *, max_documents: int) -> RankRequest:
    """The request in a body.

    >>> read_rank_request(b'{"query_id": "q", "documents": ["a", {"id": "b"}]}', max_documents=2).ids()
    (['a', 'b'], False)
    >>> read_rank_request(b'{"documents": ["a", 4]}', max_documents=2)
    Traceback (most recent call last):
    clickprism.serve.problems.Problem: expected `str | object`, got `int`
    """
    try:
        request = _DECODER.decode(body)
    except UNREADABLE as error:
        raise malformed(error) from None
    if len(request.documents) > max_documents:
        detail = f"{len(request.documents)} documents are more than the {max_documents} that a request may have"
        raise Problem(413, detail, kind="too-many-documents", pointer="/documents")
    return request
