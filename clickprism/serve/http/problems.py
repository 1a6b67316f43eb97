"""Errors of the service as `application/problem+json` (RFC 9457): what is wrong, where in the request, what to do."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, final

import msgspec

CONTENT_TYPE: Final = b"application/problem+json"
UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What a decoder raises on a body: not JSON or not as asked for, nested too deeply, not UTF-8."""
_PATH = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile(r"(?:missing required|contains unknown) field `([^`]+)`")


@final
class Details(msgspec.Struct, omit_defaults=True):
    """The body of an error.

    Attributes:
        type: what kind of error, a stable word; `about:blank` says no more than the status does.
        title: the status in words.
        status: of HTTP.
        detail: what is wrong with this request, and what to do.
        pointer: the JSON pointer (RFC 6901) of the part of the body that is wrong, where there is one.
        request_id: under which the service's log has it.
    """

    title: str
    status: int
    detail: str
    request_id: str
    type: str = "about:blank"
    pointer: str | None = None


@final
class Problem(Exception):  # noqa: N818 - the word of RFC 9457
    """What a request ends with when it cannot be answered.

    >>> problem = Problem(422, "no number", pointer="/documents/0")
    >>> problem.body("r1")
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
        self.status = status
        self.detail = detail
        self.kind = kind
        self.pointer = pointer
        self.headers = headers

    def body(self, request_id: str) -> bytes:
        """The answer's body."""
        title = phrase(self.status)
        return msgspec.json.encode(Details(title, self.status, self.detail, request_id, self.kind, self.pointer))


def phrase(status: int) -> str:
    """A status of HTTP in words."""
    return HTTPStatus(status).phrase


def malformed(error: Exception) -> Problem:
    """The problem of a body that is not JSON (400), or not what was asked for (422) with where it is not.

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
    path = _PATH.search(text)
    steps = [name or index for name, index in _STEP.findall(path[1])] if path else []
    detail = _PATH.sub("", text)
    missing = _FIELD.search(detail)
    steps += [missing[1]] if missing else []
    pointer = "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)
    return Problem(422, f"{detail[:1].lower()}{detail[1:]}", kind="invalid", pointer=pointer)
