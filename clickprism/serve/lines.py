"""The log of the service: a line of JSON for each request or event, without queries unless they are asked for."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, final

import msgspec


@final
class Lines:
    """Writes lines of JSON, each in one piece, so that those of several workers do not mix."""

    def __init__(self, handle: int = 2, *, requests: bool) -> None:
        self._handle = handle
        self.requests = requests
        self._encoder = msgspec.json.Encoder()

    def line(self, values: dict[str, Any]) -> None:
        """Write one line; a reader that went away is no error."""
        with suppress(OSError):
            os.write(self._handle, self._encoder.encode({"time": _time(), **values}) + b"\n")


@final
class JsonFormatter(logging.Formatter):
    """Records of `logging`, which libraries write, as lines of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """One record in a line."""
        values: dict[str, Any] = {"time": _time(), "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            values["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(values).decode()


def _time() -> str:
    return f"{datetime.now(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
