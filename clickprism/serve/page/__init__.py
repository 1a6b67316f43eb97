"""The page at `/`: rankings of a query side by side, under a policy that lets nothing come from outside."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from clickprism.serve.call import Answer

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = ((b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer"))
TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
TEMPLATE: Final = "page.html.j2"


def page_files() -> Mapping[str, Answer]:
    """What is sent as it is, by path: the style, the script and the pictures of `static/`."""
    answers = {}
    for file in files(__name__).joinpath("static").iterdir():
        ending = f".{file.name.rpartition('.')[2]}"
        if ending in TYPES:
            answers[f"/static/{file.name}"] = Answer(file.read_bytes(), TYPES[ending], headers=HEADERS)
    return answers


def template() -> str:
    """The source of the page."""
    return files(__name__).joinpath("static", TEMPLATE).read_text(encoding="utf-8")
