"""The page at `/`: rankings of a query side by side; its policy lets a browser load nothing from elsewhere."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final, final
from urllib.parse import parse_qs

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from clickprism._util.tables import code_html
from clickprism.errors import ClickprismError
from clickprism.serve.bundle.card import described_data
from clickprism.serve.bundle.examples import Examples, read_examples
from clickprism.serve.http.models import Live, Models
from clickprism.serve.http.problems import Problem
from clickprism.serve.http.request import BUSY, Answer, Call, Guard
from clickprism.serve.page.view import (
    CHART,
    Curve,
    curve_points,
    find,
    most_changed,
    read_diagnosis,
    read_project,
    suggestions,
    view_of,
)
from clickprism.serve.settings import ServeSettings

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
HTML: Final = b"text/html; charset=utf-8"
FORM: Final = b"application/x-www-form-urlencoded"
COOKIE: Final = b"clickprism"
RULES: Final = b"; Path=/; HttpOnly; SameSite=Strict"
SECONDS: Final = 12 * 3600
"""Age after which a cookie is invalid."""
MOST_FORM: Final = 4096
MOST_ENTERING: Final = 8
"""Forms at a time: clients without a token cannot take the places of those who have one."""
PICKS: Final = 12
ROWS: Final = 10
"""Number of documents of each ranking that are shown first."""
NOTHING: Final = Examples([])
FILE: Final = "examples.json"


def page_files() -> Mapping[str, Answer]:
    """Return the style, the script and the pictures of `static/` by path."""
    answers = {}
    for file in files(__package__).joinpath("static").iterdir():
        kind = TYPES.get(f".{file.name.rpartition('.')[2]}")
        if kind is not None:
            answers[f"/static/{file.name}"] = Answer(file.read_bytes(), kind, headers=HEADERS)
    return answers


@final
class Sessions:
    """Cookies of those who gave a valid token; without tokens no one needs one.

    >>> sessions = Sessions(Guard("secret"))
    >>> cookie = sessions.opened()
    >>> sessions.knows(cookie), sessions.knows(b"clickprism=1.00"), Sessions(Guard("other")).knows(cookie)
    (True, False, False)
    """

    def __init__(self, guard: Guard) -> None:
        self.guard = guard

    def opened(self) -> bytes:
        """Return the `Set-Cookie` of someone who gave a token; it ends with the token that signs it."""
        signed = _signed(int(time.time()) + SECONDS, next(iter(self.guard.tokens), b""))
        return COOKIE + b"=" + signed + RULES + b"; Max-Age=" + str(SECONDS).encode()

    def knows(self, header: bytes | None) -> bool:
        """Return whether a `Cookie` header has a cookie of a valid token that is not too old."""
        if not self.guard.needs_token:
            return True
        for part in (header or b"").split(b";"):
            name, _, value = part.strip().partition(b"=")
            until = value.partition(b".")[0]
            if name == COOKIE and until.isdigit() and len(until) < 16 and int(until) > time.time():
                return any(hmac.compare_digest(value, _signed(int(until), each)) for each in self.guard.tokens)
        return False


def _signed(until: int, token: bytes) -> bytes:
    text = str(until).encode()
    return text + b"." + hmac.digest(token, b"page " + text, "sha256").hex().encode()


@final
class Page:
    """The page of a service."""

    def __init__(self, settings: ServeSettings, models: Models, guard: Guard) -> None:
        self._settings, self._models, self._sessions = settings, models, Sessions(guard)
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        environment.filters["minute"] = _minute
        environment.filters["code"] = lambda text: Markup(code_html(text))  # noqa: S704 - it escapes
        source = files(__package__).joinpath("static", "page.html.j2").read_text(encoding="utf-8")
        self._template = environment.from_string(source)
        self._entering = 0
        self._read: tuple[str, Examples, str] = ("", NOTHING, "")

    async def show(self, call: Call) -> Answer:
        """`GET /`, `GET /?q=...`: the page, or the form for the token."""
        if not self._sessions.knows(call.fields.get(b"cookie")):
            return self._answer({"locked": True, "wrong": False, "view": None}, 401)
        given: bytes = call.scope.get("query_string", b"")
        limit = None if _field(given, "all") else ROWS
        return self._answer(await asyncio.to_thread(self._context, _field(given, "q")[:2000], limit), 200)

    async def enter(self, call: Call) -> Answer:
        """`POST /session`: a client that gives a token gets a cookie."""
        call.check_type(FORM)
        if self._entering >= MOST_ENTERING:
            raise Problem(503, "too many clients give a token at this moment", kind="busy", headers=BUSY)
        self._entering += 1
        try:
            body = await call.read(limit=MOST_FORM, timeout=self._settings.timeout)
        finally:
            self._entering -= 1
        guard = self._sessions.guard
        if guard.needs_token and not guard.knows(_field(body, "token").strip().encode()):
            return self._answer({"locked": True, "wrong": True, "view": None}, 401)
        return _to_page(self._sessions.opened())

    async def leave(self, _: Call) -> Answer:
        """`POST /session/end`: the cookie is removed."""
        return _to_page(COOKIE + b"=" + RULES + b"; Max-Age=0")

    def _answer(self, context: Mapping[str, Any], status: int) -> Answer:
        return Answer(self._template.render(context).encode(), HTML, status, HEADERS)

    def _context(self, wanted: str, limit: int | None) -> dict[str, Any]:
        live = self._models.current.live
        depth = None if live is None else live.rerank_depth
        examples, problem = self._examples(live)
        query = find(examples, wanted)
        diagnosis, undiagnosed = read_diagnosis(self._settings.log, None if live is None else live.bundle)
        curve = None if diagnosis is None else diagnosis.curve
        if curve is None:
            curve = Curve(examples.observation or ([] if live is None else list(live.manifest.observation)))
        top = max([1.0, *curve.values, *curve.upper])
        return {
            "locked": False,
            "session": self._sessions.guard.needs_token,
            "wanted": wanted.strip(),
            "known": examples.queries[:1000],
            "total": len(examples.queries),
            "limit": limit,
            "suggested": suggestions(examples, wanted, most=PICKS),
            "changed": [] if wanted.strip() else most_changed(examples, most=PICKS, rerank_depth=depth),
            "view": None if query is None else view_of(query, rerank_depth=depth),
            "source": examples.source,
            "reranks": "" if depth is None else f"; re-ranks only the first {depth:,}",
            "problem": problem,
            "points": curve_points(curve.values, top=top) if len(curve.values) > 1 else [],
            "band": [*curve_points(curve.upper, top=top), *reversed(curve_points(curve.lower, top=top))],
            "top": top,
            "chart": CHART,
            "facts": self._facts(live, examples),
            "diagnosis": diagnosis,
            "undiagnosed": undiagnosed,
        }

    def _examples(self, live: Live | None) -> tuple[Examples, str]:
        """Return the examples of the served bundle, read once for each version, and a problem if there are none."""
        if live is None:
            return NOTHING, "The model is not loaded yet."
        if self._read[0] != live.version:
            examples, problem = NOTHING, ""
            if FILE in live.manifest.files:
                try:
                    examples = read_examples(live.bundle.read(FILE), file=live.bundle.path(FILE))
                except ClickprismError as error:
                    problem = str(error)
            self._read = (live.version, examples, problem)
        return self._read[1], self._read[2]

    def _facts(self, live: Live | None, examples: Examples) -> list[tuple[str, str]]:
        if live is None:
            return [("model", self._models.problem() or "not loaded yet")]
        manifest = live.manifest
        facts = [
            ("model", f"{manifest.name} ({live.version})"),
            ("ranker", manifest.ranker),
            ("serving since", f"{live.since:%Y-%m-%d %H:%M} UTC"),
            ("created", f"{_minute(manifest.created)}, clickprism {manifest.clickprism}"),
            *(("data" if name == "name" else name, text) for name, text in described_data(manifest.data)),
            *((name, f"{value:.4f}") for name, value in manifest.metrics.items()),
            *(("note", note) for note in manifest.notes),
            *(() if manifest.scope is None else (("scope", manifest.scope.sentence()),)),
        ]
        if self._settings.rerank_depth is not None:
            depth = "all" if live.rerank_depth is None else f"only the first {live.rerank_depth:,}"
            facts.append(("re-ranks", f"{depth} documents of a request (--rerank-depth)"))
        stored = self._models.stored()
        if stored is not None:
            known = stored.get("problem") or f"{stored['version']}, as of {_minute(stored['as_of'])}"
            facts.append(("store", str(known)))
        return [*facts, *read_project(self._settings.project), ("examples", f"{len(examples.queries):,} queries")]


def _field(form: bytes, name: str) -> str:
    """Return a field of a form or of a query; empty if it is missing, or if there are more than any page sends."""
    try:
        return parse_qs(form.decode("utf-8", "replace"), max_num_fields=8).get(name, [""])[0]
    except ValueError:
        return ""


def _minute(time: str) -> str:
    """Return a time in ISO 8601, UTC, for readers.

    >>> _minute("2026-03-01T10:00:07+00:00")
    '2026-03-01 10:00 UTC'
    """
    return f"{time[:16].replace('T', ' ')} UTC"


def _to_page(cookie: bytes) -> Answer:
    return Answer(b"", HTML, 303, ((b"location", b"/"), (b"set-cookie", cookie), *HEADERS))
