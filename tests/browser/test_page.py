"""The page in a real browser: Debian's Chromium, headless, driven by Playwright."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from clickprism.rankers.linear import Linear
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.bundle.examples import Example, Examples, Shown
from tests.serve.rankers import network_model
from tests.serve.service_kit import TOKEN, linear_bundle, serving, until_ready
from tests.waiting import LIMIT

expect.set_options(timeout=1000 * LIMIT)
CHROMIUM = shutil.which("chromium")
HOSTILE = '<script>document.title="gone"</script><img src=x onerror=alert(1)> & "shoes" \u202e ' + "long" * 80
SHOES = [
    Shown("high", 1.0, 1000, 90, 1.0, debiased=0.2, naive=3.0, title="Stood high"),
    Shown("middle", 2.0, 1000, 30, 0.5, debiased=0.1, naive=2.0),
    Shown("low", 3.0, 500, 30, 0.2, debiased=2.2, naive=1.0, title=HOSTILE),
]
MANY = [Shown(f"d{i}", 1.0 + i, 1, i % 2, 1 / (1 + i), debiased=float((i + 20) % 37)) for i in range(37)]
EXAMPLES = Examples(
    [
        Example("q1", SHOES, "red shoes"),
        Example("q2", SHOES[:1], HOSTILE),
        Example("q3", [], "blue hats"),
        Example("q4", MANY, "many results"),
    ],
    [1.0, 0.5, 0.2],
    "simulated users",
)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ, reason="there is no chromium: scripts/debian chromium"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page")
    bundle = linear_bundle(folder / "bundle", [1.0, 0.0, 0.0], examples=EXAMPLES.bytes(), metrics={"nDCG@10": 0.5})
    log = folder / "log"
    log.mkdir()
    finding = {"name": "position bias", "verdict": "strong", "number": 0.2, "advice": "debias"}
    (log / "diagnosis.json").write_text(f'{{"as_of": "2026-03-01", "findings": [{finding}]}}'.replace("'", '"'))
    with serving(bundle, "--log", str(log)) as (address, _):
        until_ready(address)
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    with browser.new_context(base_url=address, **options) as context:
        context.set_default_timeout(1000 * LIMIT)
        yield context.new_page()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page of someone who gave the token; nothing that it loads comes from elsewhere, and no script fails."""
    with opened(browser, address, viewport={"width": 1200, "height": 900}) as page:
        page.goto("/")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_label("Token").press("Enter")
        expect(page.get_by_role("heading", name="Why rankings changed")).to_be_visible()
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(address) else troubles.append(request.url))
        yield page
        assert troubles == []


def names(page: Page, ranking: str) -> list[str]:
    return page.locator(f"[data-ranking={ranking}] .name").all_inner_texts()


def test_a_query_shows_three_rankings_with_their_bars(page: Page) -> None:
    page.get_by_label("Query", exact=True).fill("red shoes")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="red shoes", exact=True)).to_be_visible()
    high, middle, low = "Stood high", "middle", HOSTILE
    assert names(page, "logged") == [high, middle, low]
    assert names(page, "naive") == [high, middle, low]
    assert [name.strip() for name in names(page, "debiased")] == [low.strip(), high, middle]
    moves = page.locator("[data-ranking=debiased] .move").all_inner_texts()
    assert [move.split()[:2] for move in moves] == [["▲", "2"], ["▼", "1"], ["▼", "1"]]
    row = page.locator("tbody tr").nth(2)
    told = {name: row.locator(f"[data-bar={name}]").inner_text() for name in ("relevance", "observation", "clicks")}
    assert told == {"relevance": "30.0%", "observation": "20.0%", "clicks": "6.0%"}
    widths = row.locator("svg.bar rect:not(.ground)")
    assert [widths.nth(i).get_attribute("width") for i in range(5)] == ["100.0", "20.0", "66.7", "50.0", "100.0"]
    boxes = [box for i in range(4) if (box := widths.nth(i).bounding_box()) is not None]
    assert boxes[1]["width"] < boxes[3]["width"] < boxes[2]["width"] < boxes[0]["width"]
    evidence = "It was clicked in 30 of 500 impressions, at positions observed 20% as often as position 1: "
    assert f"{evidence}relevance 30.0%." in page.get_by_label("What changed").inner_text()
    assert page.locator("svg.chart circle").count() == 3
    assert page.get_by_text("position bias").is_visible()
    assert "simulated users" in page.inner_text("main")
    assert page.title() == "red shoes · clickprism"


def test_a_wrong_query_shows_what_there_is(page: Page) -> None:
    page.goto("/?q=red+shoos")
    expect(page.get_by_role("heading", name="No such query here")).to_be_visible()
    page.get_by_role("link", name="red shoes").click()
    expect(page.get_by_role("heading", name="red shoes", exact=True)).to_be_visible()
    page.goto("/?q=%FF%00&q=2")
    expect(page.get_by_role("heading", name="No such query here")).to_be_visible()
    page.goto("/?q=blue")
    expect(page.get_by_text("The log has no document of this query.")).to_be_visible()


def test_hostile_text_is_text(page: Page) -> None:
    page.goto("/?q=q2")
    assert page.get_by_role("heading", level=1).inner_text().strip() == HOSTILE.strip()
    assert page.title().startswith("<script>")
    assert page.locator("[data-bar=impressions]").inner_text() == "1,000"
    assert page.locator("[data-bar=clicks]").inner_text() == "9.0%"


def test_the_page_works_by_keyboard_alone(page: Page) -> None:
    page.keyboard.type("blue hats")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="blue hats")).to_be_visible()
    page.goto("/?q=q1")
    page.locator("[data-ranking=debiased] li").first.focus()
    page.keyboard.press("ArrowDown")
    marked = page.locator("li.marked .name")
    assert set(marked.all_inner_texts()) == {"Stood high"}
    assert marked.count() == 3


def test_the_page_fits_small_screens_and_both_themes(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/", "/?q=q1", "/?q=q2", "/?q=none"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
    ground = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) != light
    page.get_by_role("button", name="Light").click()
    assert page.evaluate(ground) == light
    page.reload()
    assert page.evaluate(ground) == light


def test_the_page_works_without_script_and_hides_everything_without_the_token(browser: Browser, address: str) -> None:
    with opened(browser, address, java_script_enabled=False) as page:
        answer = page.goto("/?q=q1")
        assert answer is not None
        assert answer.status == 401
        assert "shoes" not in page.content()
        page.get_by_label("Token").fill("a guess")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("alert")).to_have_text("That is not the token of this service.")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Open").click()
        page.goto("/?q=q1")
        assert names(page, "debiased")[1:] == ["Stood high", "middle"]
        cookie = page.context.cookies()[0]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert TOKEN not in cookie["value"]
        page.get_by_role("button", name="Leave").click()
        expect(page.get_by_role("heading", name="Enter the token")).to_be_visible()


def test_long_lists_are_cut_and_the_landing_page_says_what_changed(page: Page) -> None:
    page.goto("/?q=many")
    assert [page.locator(f"[data-ranking={name}] li").count() for name in ("logged", "debiased")] == [10, 10]
    assert page.locator("tbody tr").count() == 10
    page.get_by_role("link", name="Show all 37 documents").click()
    assert page.locator("tbody tr").count() == 37
    page.goto("/")
    expect(page.get_by_role("heading", name="Rankings that changed most")).to_be_visible()
    assert page.get_by_role("link", name="many results 36 moved").is_visible()
    assert "serving since" in page.inner_text("main")


def test_the_diagnosis_of_a_bundle_is_shown(browser: Browser, tmp_path: Path) -> None:
    found = {"name": "position", "verdict": "present", "sentence": "Lower positions are observed less often."}
    model = network_model(Linear())
    write_bundle(tmp_path / "bundle", model, diagnosis=json.dumps({"findings": [found], "as_of": None}).encode())
    with serving(tmp_path / "bundle", "--no-auth", token=None) as (address, _), opened(browser, address) as page:
        until_ready(address)
        page.goto("/")
        assert page.get_by_text("Lower positions are observed less often.").is_visible()


def test_a_bundle_without_examples_has_a_page(browser: Browser, tmp_path: Path) -> None:
    bundle = linear_bundle(tmp_path / "plain", [1.0, 2.0])
    with serving(bundle, "--no-auth", token=None) as (address, _), opened(browser, address) as page:
        until_ready(address)
        page.goto("/")
        expect(page.get_by_role("heading", name="No examples in this bundle")).to_be_visible()
        assert page.get_by_role("button", name="Leave").count() == 0
