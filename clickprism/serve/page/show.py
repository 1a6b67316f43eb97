"""The page's three paths: `/`, and the door for the token, `/session` and `/session/end`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, final
from urllib.parse import parse_qs

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from clickprism.errors import ClickprismError
from clickprism.serve.call import BUSY, Answer, Call
from clickprism.serve.examples import Example, Examples, read_examples
from clickprism.serve.live import Live
from clickprism.serve.models import Models
from clickprism.serve.page import HEADERS, template
from clickprism.serve.page.chart import curve
from clickprism.serve.page.diagnosis import read_diagnosis
from clickprism.serve.page.session import Sessions
from clickprism.serve.page.view import find, suggestions, view_of
from clickprism.serve.problems import Problem
from clickprism.serve.settings import ServeSettings

HTML: Final = b"text/html; charset=utf-8"
FORM: Final = b"application/x-www-form-urlencoded"
MOST_FORM: Final = 4096
MOST_ENTERING: Final = 8
"""Forms under way at a time: whoever has no token cannot fill the places of those who have one."""
PICKS: Final = 12
NOTHING: Final = Examples(1, [])
FILE: Final = "examples.json"


@final
class Page:
    """The page of a service."""

    def __init__(self, settings: ServeSettings, models: Models, *, token: str | None) -> None:
        self._settings = settings
        self._models = models
        self._sessions = Sessions(token)
        shape = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        self._template = shape.from_string(template())
        self._entering = 0
        self._read: tuple[str, Examples, str] = ("", NOTHING, "")

    async def show(self, call: Call) -> Answer:
        """`GET /`, `GET /?q=...`: the page, or the form for the token."""
        if not self._sessions.knows(call.headers.get(b"cookie")):
            return self._door(wrong=False)
        wanted = _field(call.query_string, "q")[:2000]
        return self._answer(await asyncio.to_thread(self._context, wanted), 200)

    async def enter(self, call: Call) -> Answer:
        """`POST /session`: whoever gives the token gets a cookie."""
        call.check_type(FORM)
        if self._entering >= MOST_ENTERING:
            raise Problem(503, "too many give a token at this moment", kind="busy", headers=BUSY)
        self._entering += 1
        try:
            body = await call.body(limit=MOST_FORM, timeout=self._settings.timeout)
        finally:
            self._entering -= 1
        if self._sessions.needed and not self._sessions.is_token(_field(body, "token")):
            return self._door(wrong=True)
        return _to_page(self._sessions.opened())

    async def leave(self, _: Call) -> Answer:
        """`POST /session/end`: the cookie is taken away."""
        return _to_page(self._sessions.closed())

    def _door(self, *, wrong: bool) -> Answer:
        return self._answer({"locked": True, "wrong": wrong, "view": None}, 401)

    def _answer(self, context: Mapping[str, Any], status: int) -> Answer:
        return Answer(self._template.render(context).encode(), HTML, status, HEADERS)

    def _context(self, wanted: str) -> dict[str, Any]:
        live = self._models.current.live
        depth = None if live is None else live.rerank_depth
        examples, problem = self._examples(live)
        query = find(examples, wanted)
        counts, counted = (None, f"Clicks: {examples.source}.") if query is None else self._counts(query, examples)
        diagnosis, undiagnosed = read_diagnosis(self._settings.log)
        seen = examples.observation or (list(live.bundle.manifest.observation) if live is not None else [])
        return {
            "locked": False,
            "session": self._sessions.needed,
            "wanted": wanted.strip(),
            "known": examples.queries[:1000],
            "total": len(examples.queries),
            "suggested": suggestions(examples, wanted, most=PICKS),
            "view": None if query is None else view_of(query, counts, rerank_depth=depth),
            "counted": counted,
            "reranks": "" if depth is None else f"; re-ranks only the first {depth:,}",
            "problem": problem,
            "chart": Markup(curve(seen, label="observation by position")) if len(seen) > 1 else "",  # noqa: S704
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
            ("made", f"{manifest.created}, clickprism {manifest.clickprism}"),
            *(("data" if name == "name" else name, str(value)) for name, value in manifest.data.items()),
            *((name, f"{value:.4f}") for name, value in manifest.metrics.items()),
            *(() if manifest.scope is None else (("scope", manifest.scope.sentence()),)),
        ]
        if self._settings.rerank_depth is not None:
            depth = "all" if live.rerank_depth is None else f"only the first {live.rerank_depth:,}"
            facts.append(("re-ranks", f"{depth} documents of a request (--rerank-depth)"))
        stored = self._models.stored()
        if stored is not None:
            facts.append(("store", str(stored.get("problem") or f"{stored['version']}, as of {stored['as_of']}")))
        return [*facts, ("examples", f"{len(examples.queries):,} queries")]


def _field(form: bytes, name: str) -> str:
    """A field of a form or of a path's query; empty where it is not there, or there are more than any page sends."""
    try:
        return parse_qs(form.decode("utf-8", "replace"), max_num_fields=8).get(name, [""])[0]
    except ValueError:
        return ""


def _to_page(cookie: bytes) -> Answer:
    return Answer(b"", HTML, 303, ((b"location", b"/"), (b"set-cookie", cookie), *HEADERS))
