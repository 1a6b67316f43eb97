"""Errors of the service as `application/problem+json` (RFC 9457): what is wrong, where in the request, what to do."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, final

import msgspec

CONTENT_TYPE: Final = b"application/problem+json"
UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What a decoder raises on a body: not JSON or of another structure, nested too deeply, not UTF-8."""
_PATH = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile(r"(?:missing required|contains unknown) field `([^`]+)`")


@final
class Details(msgspec.Struct, omit_defaults=True):
    """The body of an error."""

    title: str  # Standard phrase of the HTTP status, such as Not Found
    status: int  # Status of HTTP
    detail: str  # What is wrong with this request, and what to do
    request_id: str  # Id of the request in the log of the service
    type: str = "about:blank"  # Kind of the error, a stable word
    pointer: str | None = None  # JSON pointer (RFC 6901) to the wrong part of the body


@final
class Problem(Exception):  # noqa: N818 - the word of RFC 9457
    """The error that a request is answered with.

    >>> Problem(422, "no number", pointer="/documents/0").body("r1")
    b'{"title":"Unprocessable Entity","status":422,"detail":"no number","request_id":"r1","pointer":"/documents/0"}'
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str = "about:blank",
        pointer: str | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.kind, self.pointer, self.headers = status, detail, kind, pointer, headers

    def body(self, request_id: str) -> bytes:
        """Return the body of the answer."""
        title = HTTPStatus(self.status).phrase
        return msgspec.json.encode(Details(title, self.status, self.detail, request_id, self.kind, self.pointer))


def invalid(detail: str, pointer: str = "/documents", *steps: object) -> Problem:
    """Return the problem of a field that is wrong; the steps lead to it from the pointer.

    >>> invalid("no number", "/documents", 0, "a/b").pointer
    '/documents/0/a~1b'
    """
    path = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
    return Problem(422, detail, kind="invalid", pointer=pointer + path)


def malformed(error: Exception) -> Problem:
    """Return the problem of a body that is not JSON (400), or of another structure (422).

    >>> class Query(msgspec.Struct):
    ...     documents: list[str]
    >>> def read(body):
    ...     try:
    ...         msgspec.json.decode(body, type=Query)
    ...     except msgspec.DecodeError as error:
    ...         problem = malformed(error)
    ...         print(problem.status, problem.detail, problem.pointer)
    >>> read(b'{"documents": ["a", 1]}')
    422 expected `str`, got `int` /documents/1
    >>> read(b'{"documents": [')
    400 the body is not JSON: input data was truncated None
    """
    text = str(error)
    if isinstance(error, RecursionError):
        return Problem(400, "the body is nested too deeply", kind="malformed")
    if isinstance(error, UnicodeDecodeError):
        return Problem(400, "the body is not UTF-8", kind="malformed")
    if not isinstance(error, msgspec.ValidationError):
        text = text.removeprefix("JSON is malformed: ")
        return Problem(400, f"the body is not JSON: {text[:1].lower()}{text[1:]}", kind="malformed")
    path, detail = _PATH.search(text), _PATH.sub("", text)
    steps = [name or index for name, index in _STEP.findall(path[1])] if path else []
    missing = _FIELD.search(detail)
    return invalid(f"{detail[:1].lower()}{detail[1:]}", "", *steps, *([missing[1]] if missing else []))
