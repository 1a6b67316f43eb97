"""The page at `/`: files of the package, sent as they are, under a policy that lets nothing come from outside."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from clickprism.serve.call import Answer

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = ((b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer"))
TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


def page_files() -> Mapping[str, Answer]:
    """What is sent by path: `index.html` at `/`, every other file of `static/` under `/static/`."""
    answers = {}
    for file in files(__name__).joinpath("static").iterdir():
        ending = f".{file.name.rpartition('.')[2]}"
        if ending in TYPES:
            path = "/" if file.name == "index.html" else f"/static/{file.name}"
            answers[path] = Answer(file.read_bytes(), TYPES[ending], headers=HEADERS)
    return answers
