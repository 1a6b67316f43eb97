"""Logs at s3:// URLs, read by Arrow's client from a server that answers as Amazon S3 does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

import clickprism as cp
from clickprism.data.logged import log_fingerprint
from clickprism.errors import DataError
from tests.data.shop import shop_clicks

BUCKET = "/logs/"
ROLES = {"query": "q", "document": "sku", "position": "rank", "click": "clicked", "features": "all others"}


class _Bucket(BaseHTTPRequestHandler):
    """One bucket: `HeadObject`, `GetObject` with ranges, and `ListObjectsV2`."""

    objects: dict[str, bytes]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        wanted = unquote(url.path).removeprefix(BUCKET)
        if unquote(url.path).rstrip("/") == BUCKET.rstrip("/"):
            prefix = parse_qs(url.query).get("prefix", [""])[0]
            keys = [
                f"<Contents><Key>{key}</Key><Size>{len(body)}</Size><LastModified>2026-03-01T00:00:00Z</LastModified>"
                "</Contents>"
                for key, body in self.objects.items()
                if key.startswith(prefix)
            ]
            listed = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(keys)}</ListBucketResult>"
            self._answer(200, listed.encode())
        elif wanted in self.objects:
            body, asked = self.objects[wanted], self.headers.get("Range")
            first, last = asked.removeprefix("bytes=").split("-") if asked else ("0", "")
            self._answer(206 if asked else 200, body[int(first) : int(last) + 1 if last else None])
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Sun, 01 Mar 2026 00:00:00 GMT")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_request(self, *_: object, **__: object) -> None:
        """Print nothing."""


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The end of a URL that names the server."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    frame, objects = shop_clicks(30), dict[str, bytes]()
    for number, part in enumerate((frame[:120], frame[120:])):
        file = io.BytesIO()
        part.to_parquet(file, index=False)
        objects[f"shop/{number}.parquet"] = file.getvalue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Shop", (_Bucket,), {"objects": objects}))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_folder_a_pattern_and_a_file_of_a_bucket(options: str) -> None:
    notes: list[str] = []
    whole = log_fingerprint(cp.read_log(shop_clicks(30), **ROLES))  # type: ignore[arg-type]
    for path in ("shop", "shop/*.parquet"):
        log = cp.read_log(f"s3://logs/{path}{options}", note=notes.append, **ROLES)  # type: ignore[arg-type]
        assert log_fingerprint(log) == whole
    one = cp.read_log(f"s3://logs/shop/0.parquet{options}", note=notes.append, **ROLES)  # type: ignore[arg-type]
    assert one.clicks.sessions == 12
    assert notes.count("Fetching 0.parquet") == 3


def test_a_file_that_is_not_there(options: str) -> None:
    with pytest.raises(DataError, match=r"there is no such file\. Check the URL, its region and the credentials"):
        cp.read_log(f"s3://logs/other/*.csv{options}")
