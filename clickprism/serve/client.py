"""A client of the service in plain Python: rankings, and events that are sent again until they arrive, once."""

from __future__ import annotations

import gzip
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from itertools import count
from typing import Any, Final, final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from clickprism.errors import ClickprismError, SettingError
from clickprism.serve.settings import TOKEN_VARIABLE

RETRIED: Final = (0, 408, 429, 502, 503, 504)
"""Statuses after which a request is sent again; 0 is no answer."""
LONGEST_PAUSE: Final = 30.0
NONE: Final[Mapping[str, str]] = {}


class ServiceError(ClickprismError):
    """The service refused a request. `status` is that of HTTP (0: no answer), `pointer` the part that is wrong."""

    def __init__(self, status: int, detail: str, *, pointer: str | None = None) -> None:
        super().__init__(f"{detail} (status {status})" if status else detail)
        self.status, self.pointer = status, pointer


@final
class Client:
    """A client of `clickprism serve`. Threads may share one.

    Args:
        address: such as http://127.0.0.1:8000.
        token: of the service; by default that of the variable CLICKPRISM_TOKEN.
        timeout: seconds to wait for an answer.
        retries: how often a request is sent again if there is no answer, or the service is busy.
        sleep: waits between two attempts.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 4,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not address.startswith(("http://", "https://")):
            raise SettingError("address", address, "start with http:// or https://")
        self._address = address.rstrip("/")
        self._token = os.environ.get(TOKEN_VARIABLE) if token is None else token
        self._timeout, self._retries, self._sleep = timeout, retries, sleep

    def rank(self, documents: Sequence[str] | Mapping[str, Any], **request: Any) -> dict[str, Any]:
        """Return the answer of `POST /v1/rank`: its `items` are the documents, best first.

        Args:
            documents: ids, or features by id: a mapping by name, or a list in the order of the model.
            request: other fields of the request, such as query_id, query, explain and top.
        """
        given: list[Any] = list(documents)
        if isinstance(documents, Mapping):
            given = [{"id": name, "features": features} for name, features in documents.items()]
        return self._send("/v1/rank", {"documents": given, **request})

    def events(self, rows: Sequence[Mapping[str, Any]], *, key: str | None = None) -> dict[str, Any]:
        """Send a batch of events; however often it is sent again under its key, it counts once.

        Args:
            rows: events as `clickprism log ingest` reads them.
            key: of the batch; give the same one when you send it again after an error. By default a new one.
        """
        headers = {"Idempotency-Key": key or uuid.uuid4().hex, "Content-Encoding": "gzip"}
        return self._send("/v1/events", list(rows), headers)

    def models(self) -> dict[str, Any]:
        """Return the models in use, with the feature names of each, and the store."""
        return self._send("/v1/models")

    def _send(self, path: str, body: Any = None, headers: Mapping[str, str] = NONE) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        fields = {"Content-Type": "application/json", **headers}
        if self._token is not None:
            fields["Authorization"] = f"Bearer {self._token}"
        if "Content-Encoding" in headers:
            data = gzip.compress(data or b"", 1)
        request = Request(self._address + path, data, fields)  # noqa: S310 - the scheme is checked
        for attempt in count():
            try:
                with urlopen(request, timeout=self._timeout) as answer:  # noqa: S310 - the scheme is checked
                    return dict(json.load(answer))
            except HTTPError as error:
                with error:
                    failure, pause = _refused(error), error.headers.get("Retry-After", "")
            except (OSError, HTTPException) as error:
                failure, pause = ServiceError(0, f"{self._address} does not answer: {error}"), ""
            if attempt == self._retries or failure.status not in RETRIED:
                break
            self._sleep(min(LONGEST_PAUSE, float(pause) if pause.isdecimal() else 0.1 * 2.0**attempt))
        raise failure


def _refused(error: HTTPError) -> ServiceError:
    try:
        body = json.load(error)
        return ServiceError(error.code, str(body["detail"]), pointer=body.get("pointer"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServiceError(error.code, str(error.reason))
