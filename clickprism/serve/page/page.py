"""The page at `/`: rankings of a query side by side, under a policy that lets nothing come from outside."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final, final
from urllib.parse import parse_qs

from jinja2 import Environment, StrictUndefined

from clickprism.errors import ClickprismError
from clickprism.serve.bundle.card import described_data
from clickprism.serve.bundle.examples import Example, Examples, read_examples
from clickprism.serve.http.call import BUSY, Answer, Call, Tokens
from clickprism.serve.http.models import Live, Models
from clickprism.serve.http.problems import Problem
from clickprism.serve.page.view import CHART, curve_points, find, most_changed, read_diagnosis, suggestions, view_of
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
TEMPLATE: Final = "page.html.j2"


def page_files() -> Mapping[str, Answer]:
    """What is sent as it is, by path: the style, the script and the pictures of `static/`."""
    answers = {}
    for file in files(__package__).joinpath("static").iterdir():
        ending = f".{file.name.rpartition('.')[2]}"
        if ending in TYPES:
            answers[f"/static/{file.name}"] = Answer(file.read_bytes(), TYPES[ending], headers=HEADERS)
    return answers


def template() -> str:
    """The source of the page."""
    return files(__package__).joinpath("static", TEMPLATE).read_text(encoding="utf-8")


NAME: Final = b"clickprism"
SECONDS: Final = 12 * 3600
_RULES: Final = b"; Path=/; HttpOnly; SameSite=Strict"


@final
class Sessions:
    """Cookies of those who gave a valid token; without tokens no one needs one.

    >>> sessions = Sessions(Tokens("secret"))
    >>> cookie = sessions.opened()
    >>> sessions.knows(cookie), sessions.knows(b"clickprism=1.00"), Sessions(Tokens("other")).knows(cookie)
    (True, False, False)
    """

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def opened(self) -> bytes:
        """Return the `Set-Cookie` of someone who gave a token; it ends with the token that signs it."""
        until = int(time.time()) + SECONDS
        signed = _signed(until, next(iter(self.tokens.values), b""))
        return NAME + b"=" + signed + _RULES + b"; Max-Age=" + str(SECONDS).encode()

    @staticmethod
    def closed() -> bytes:
        """Return the `Set-Cookie` that takes it away."""
        return NAME + b"=" + _RULES + b"; Max-Age=0"

    def knows(self, header: bytes | None) -> bool:
        """Return whether a `Cookie` header has a cookie of a valid token that is not too old."""
        if not self.tokens.needed:
            return True
        for part in (header or b"").split(b";"):
            name, _, value = part.strip().partition(b"=")
            until = value.partition(b".")[0]
            if name == NAME and until.isdigit() and len(until) < 16 and int(until) > time.time():
                return any(hmac.compare_digest(value, _signed(int(until), each)) for each in self.tokens.values)
        return False


def _signed(until: int, token: bytes) -> bytes:
    text = str(until).encode()
    return text + b"." + hmac.digest(token, b"page " + text, "sha256").hex().encode()


HTML: Final = b"text/html; charset=utf-8"
FORM: Final = b"application/x-www-form-urlencoded"
MOST_FORM: Final = 4096
MOST_ENTERING: Final = 8
"""Forms under way at a time: whoever has no token cannot fill the places of those who have one."""
PICKS: Final = 12
ROWS: Final = 10
"""Number of documents of each ranking that are shown first."""
NOTHING: Final = Examples(1, [])
FILE: Final = "examples.json"


@final
class Page:
    """The page of a service."""

    def __init__(self, settings: ServeSettings, models: Models, tokens: Tokens) -> None:
        self._settings = settings
        self._models = models
        self._sessions = Sessions(tokens)
        shape = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        self._template = shape.from_string(template())
        self._entering = 0
        self._read: tuple[str, Examples, str] = ("", NOTHING, "")

    async def show(self, call: Call) -> Answer:
        """`GET /`, `GET /?q=...`: the page, or the form for the token."""
        if not self._sessions.knows(call.fields.get(b"cookie")):
            return self._door(wrong=False)
        given: bytes = call.scope.get("query_string", b"")
        limit = None if _field(given, "all") else ROWS
        return self._answer(await asyncio.to_thread(self._context, _field(given, "q")[:2000], limit), 200)

    async def enter(self, call: Call) -> Answer:
        """`POST /session`: whoever gives the token gets a cookie."""
        call.check_type(FORM)
        if self._entering >= MOST_ENTERING:
            raise Problem(503, "too many give a token at this moment", kind="busy", headers=BUSY)
        self._entering += 1
        try:
            body = await call.read(limit=MOST_FORM, timeout=self._settings.timeout)
        finally:
            self._entering -= 1
        tokens = self._sessions.tokens
        if tokens.needed and not tokens.knows(_field(body, "token").strip().encode()):
            return self._door(wrong=True)
        return _to_page(self._sessions.opened())

    async def leave(self, _: Call) -> Answer:
        """`POST /session/end`: the cookie is taken away."""
        return _to_page(self._sessions.closed())

    def _door(self, *, wrong: bool) -> Answer:
        return self._answer({"locked": True, "wrong": wrong, "view": None}, 401)

    def _answer(self, context: Mapping[str, Any], status: int) -> Answer:
        return Answer(self._template.render(context).encode(), HTML, status, HEADERS)

    def _context(self, wanted: str, limit: int | None) -> dict[str, Any]:
        live = self._models.current.live
        depth = None if live is None else live.rerank_depth
        examples, problem = self._examples(live)
        query = find(examples, wanted)
        counts, counted = (None, f"Clicks: {examples.source}.") if query is None else self._counts(query, examples)
        diagnosis, undiagnosed = read_diagnosis(self._settings.log, None if live is None else live.bundle)
        seen = examples.observation or (list(live.bundle.manifest.observation) if live is not None else [])
        return {
            "locked": False,
            "session": self._sessions.tokens.needed,
            "wanted": wanted.strip(),
            "known": examples.queries[:1000],
            "total": len(examples.queries),
            "limit": limit,
            "suggested": suggestions(examples, wanted, most=PICKS),
            "changed": [] if wanted.strip() else most_changed(examples, most=PICKS, rerank_depth=depth),
            "view": None if query is None else view_of(query, counts, rerank_depth=depth),
            "counted": counted,
            "reranks": "" if depth is None else f"; re-ranks only the first {depth:,}",
            "problem": problem,
            "points": curve_points(seen) if len(seen) > 1 else [],
            "chart": CHART,
            "facts": self._facts(live, examples),
            "diagnosis": diagnosis,
            "undiagnosed": undiagnosed,
        }

    def _examples(self, live: Live | None) -> tuple[Examples, str]:
        """Those of the bundle that is served, read once a version."""
        if live is None:
            return NOTHING, "The model is not loaded yet."
        if self._read[0] != live.version:
            examples, problem = NOTHING, ""
            if FILE in live.bundle.manifest.files:
                try:
                    examples = read_examples(live.bundle.read(FILE), file=live.bundle.path(FILE))
                except ClickprismError as error:
                    problem = str(error)
            self._read = (live.version, examples, problem)
        return self._read[1], self._read[2]

    def _counts(self, query: Example, examples: Examples) -> tuple[dict[str, tuple[int, int]] | None, str]:
        """Impressions and clicks of the last month, where the store has them, and a sentence on whose they are."""
        old = f"Click rate and impressions: {examples.source}." if examples.source else ""
        store = self._models.store
        if store is None:
            return None, old
        try:
            found = store.get(query.id, [each.id for each in query.documents])
        except ClickprismError:
            return None, old
        places = [
            found.info.fields.index(name) if name in found.info.fields else -1
            for name in ("month.impressions", "month.clicked")
        ]
        if min(places) < 0 or not found.found.any():
            return None, old
        counts = {
            each.id: (int(row[places[0]]), int(row[places[1]]))
            for each, row, there in zip(query.documents, found.x, found.found, strict=True)
            if there
        }
        return counts, f"Click rate and impressions: four weeks up to {found.info.as_of:%Y-%m-%d %H:%M} UTC."

    def _facts(self, live: Live | None, examples: Examples) -> list[tuple[str, str]]:
        if live is None:
            return [("model", self._models.problem() or "not loaded yet")]
        manifest = live.bundle.manifest
        facts = [
            ("model", f"{manifest.name} ({live.version})"),
            ("ranker", f"{manifest.kind}, by {manifest.method.get('name', '?')}"),
            ("serving since", f"{live.since:%Y-%m-%d %H:%M} UTC"),
            ("made", f"{manifest.created}, clickprism {manifest.clickprism}"),
            *(("data" if name == "name" else name, text) for name, text in described_data(manifest.data)),
            *((name, f"{value:.4f}") for name, value in manifest.metrics.items()),
            *(() if manifest.scope is None else (("scope", manifest.scope.sentence()),)),
        ]
        if self._settings.rerank_depth is not None:
            depth = "all" if live.rerank_depth is None else f"only the first {live.rerank_depth:,}"
            facts.append(("re-ranks", f"{depth} documents of a request (--rerank-depth)"))
        stored = self._models.stored()
        if stored is not None:
            facts.append(("store", str(stored.get("problem") or f"{stored['version']}, as of {stored['as_of'][:19]}Z")))
        return [*facts, ("examples", f"{len(examples.queries):,} queries")]


def _field(form: bytes, name: str) -> str:
    """A field of a form or of a path's query; empty where it is not there, or there are more than any page sends."""
    try:
        return parse_qs(form.decode("utf-8", "replace"), max_num_fields=8).get(name, [""])[0]
    except ValueError:
        return ""


def _to_page(cookie: bytes) -> Answer:
    return Answer(b"", HTML, 303, ((b"location", b"/"), (b"set-cookie", cookie), *HEADERS))
