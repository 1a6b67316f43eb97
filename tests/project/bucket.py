"""A stand-in for a bucket: a server that lists and sends the files of a folder in the protocol of S3."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@contextmanager
def bucket(folder: Path, name: str) -> Iterator[str]:
    """Serve a folder as a bucket of this name; yields the options of its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def do_HEAD(self) -> None:
            self._send(*self._object())

        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            self._send(*(self._list(asked.get("prefix", [""])[0]) if "list-type" in asked else self._object()))

        def _list(self, prefix: str) -> tuple[int, bytes, dict[str, str]]:
            keys = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
            rows = ""
            for key in keys:
                about = (folder / key).stat()
                time = f"<LastModified>{formatdate(about.st_mtime, usegmt=True)}</LastModified>"
                row = f"<Contents><Key>{escape(key)}</Key>{time}<Size>{about.st_size}</Size></Contents>"
                rows += row if key.startswith(prefix) else ""
            head = f"<Name>{name}</Name><IsTruncated>false</IsTruncated>"
            return 200, f"<ListBucketResult>{head}{rows}</ListBucketResult>".encode(), {}

        def _object(self) -> tuple[int, bytes, dict[str, str]]:
            file = folder / unquote(urlsplit(self.path).path).removeprefix(f"/{name}").lstrip("/")
            if not file.is_file():
                return (200 if file == folder else 404), b"", {}
            content, headers = file.read_bytes(), {"Last-Modified": formatdate(file.stat().st_mtime, usegmt=True)}
            headers["ETag"] = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
            if not (given := self.headers.get("Range")):
                return 200, content, headers
            first, _, last = given.removeprefix("bytes=").partition("-")
            stop = min(int(last or len(content)) + 1, len(content))
            return (
                206,
                content[int(first) : stop],
                headers | {"Content-Range": f"bytes {first}-{stop - 1}/{len(content)}"},
            )

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for header, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(header, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"?scheme=http&region=us-east-1&endpoint_override=127.0.0.1%3A{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
