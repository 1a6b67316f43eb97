"""`clickprism serve` and `clickprism store`: the service, and the store that it reads features from."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from clickprism.cli.reference import examples
from clickprism.log.engines.base import connect
from clickprism.log.features.windows import windows
from clickprism.log.ingest import ingest
from clickprism.log.settings import WindowSettings
from clickprism.log.store import LogStore
from clickprism.serve.bundle.deployment import Deployment
from clickprism.serve.store.redis import PASSWORD_VARIABLE
from tests.log.raw_logs import random_files
from tests.serve.redis_server import redis_server
from tests.serve.service_kit import TOKEN, fetch, linear_bundle, service, until_ready
from tests.waiting import LIMIT

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log that has click features, a table of features, a bundle and a deployment."""
    folder = tmp_path_factory.mktemp("shop")
    ingest(random_files(folder / "events", files=1, rows=200, seed=3), folder / "mylog", max_bad_ratio=1)
    with connect(memory="200MB", threads=1) as engine:
        windows(LogStore.open(folder / "mylog"), engine, datetime(2026, 3, 3, 12), settings=WindowSettings(k=0))
    (folder / "features.csv").write_text("query_id,document_id,price,age,clicks\nq,a,1,2,3\nq,b,2,2,3\n")
    Deployment(folder / "deployment").promote(linear_bundle(folder / "bundle", [1.0, 10.0, 100.0]))
    return folder


@pytest.fixture(autouse=True)
def _here(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a working directory with everything in the shop."""
    for each in shop.iterdir():
        (tmp_path / each.name).symlink_to(each)
    monkeypatch.chdir(tmp_path)


def test_the_service_prints_where_it_listens() -> None:
    with service("bundle", token=None) as (shown, process):
        assert (shown["host"], shown["pid"]) == ("127.0.0.1", process.pid)
        assert shown["address"] == f"http://127.0.0.1:{shown['port']}"
        assert shown["port"] > 0
        until_ready(shown["address"])
        body = {"documents": [{"id": "a", "features": [1, 2, 3]}]}
        reply = fetch(f"{shown['address']}/v1/rank", body, token=shown["token"])
        assert (reply.json["model_version"], reply.json["items"][0]["score"]) == (shown["version"], 321.0)
        assert fetch(f"{shown['address']}/v1/rank", body, token="guess").status == 401  # noqa: S106 - wrong on purpose
        process.terminate()
        assert process.wait(LIMIT) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "", "standard output has one JSON object and nothing else"


def test_a_token_that_was_given_is_not_printed() -> None:
    with service("bundle") as (shown, _):
        assert shown["token"] is None
        until_ready(shown["address"])
        assert fetch(f"{shown['address']}/v1/models", token=TOKEN).status == 200


def test_wrong_settings_end_the_service_before_it_listens(cli: Run) -> None:
    told = cli("serve", "bundle", "--host", "192.0.2.1", "--no-auth", code=2).stderr
    assert "--no-auth must not be given when --host is not a loopback address" in told
    assert "--max-feature-age must be" in cli("serve", "bundle", "--max-feature-age", "0", code=2).stderr
    assert "clickprism model bundle" in cli("serve", "nothing", "--no-auth", code=1).stderr
    told = cli("serve", "bundle", "--store", "nothing", "--no-auth", code=1).stderr
    assert "clickprism store publish LOG --to" in told


@pytest.mark.parametrize(
    "address", ["redis://:secret@db", "rediss://me:secret@db/0?prefix=a", "unix:///s?password=secret"]
)
@pytest.mark.parametrize(
    "words", [["serve", "bundle", "--store"], ["store", "publish", "--features", "file", "--to"], ["store", "info"]]
)
def test_a_password_in_a_command_is_refused(words: list[str], address: str, cli: Run) -> None:
    told = cli(*words, address, code=2).stderr
    assert f"set {PASSWORD_VARIABLE} instead" in told
    assert "secret" not in told


def test_a_log_is_published_once(cli: Run) -> None:
    first = cli("store", "publish", "mylog", "--to", "store", "--json").json
    assert (first["changed"], first["info"]["as_of"]) == (True, "2026-03-03T12:00:00")
    assert "month.clicked@3" in first["info"]["fields"]
    again = cli("store", "publish", "mylog", "--to", "store")
    assert "has this version already" in again.stdout
    assert "store info store" in again.stderr


def test_what_cannot_be_published_says_why(cli: Run) -> None:
    told = cli("store", "publish", "--to", "store", code=2).stderr
    assert told.startswith("error: LOG must be given, or --features, --imputed or --estimates\n")
    assert "no.csv" in cli("store", "publish", "--features", "no.csv", "--to", "store", code=1).stderr
    assert "not an online store" in cli("store", "publish", "mylog", "--to", "mylog", code=1).stderr
    told = cli("store", "publish", "--features", "features.csv", "--to", "store", "--snapshot", 1, code=2).stderr
    assert "--snapshot must be given together with a log" in told


@pytest.mark.parametrize("kind", ["folder", "redis"])
def test_info_describes_the_current_version_of_a_store(kind: str, cli: Run) -> None:
    def check(store: str) -> None:
        assert "clickprism store publish LOG --to" in cli("store", "info", store, code=1).stderr
        made = [
            cli("store", "publish", *words, "--to", store, "--json").json["info"]["version"]
            for words in (["mylog"], ["--features", "features.csv", "--as-of", "2026-03-01T12:00:00"])
        ]
        shown = cli("store", "info", store, "--json").json
        assert (shown["version"], shown["fields"]) == (made[1], ["price", "age", "clicks"])
        assert (shown["as_of"], shown["pairs"]) == ("2026-03-01T12:00:00", 2)
        assert shown["age_seconds"] > 0
        text = cli("store", "info", store).stdout
        assert made[1] in text
        assert "price" in text

    if kind == "folder":
        check("store")
        return
    with redis_server() as url:
        check(f"{url}?prefix=shop")


def test_the_examples_of_the_help_run(cli: Run) -> None:
    for path in (["store", "publish"], ["store", "info"]):
        for line in examples(path):
            cli(*shlex.split(line)[1:])
    for line in examples(["serve"]):
        with service(*shlex.split(line)[2:]) as (shown, process):
            assert shown["port"] > 0
            process.terminate()
            assert process.wait(LIMIT) == 0
