"""`clickprism model`, `serve` and `store`: bundle, deploy and serve rankers, and publish their features."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from clickprism.cli.output import Flat, Output, command_line
from clickprism.errors import SettingError
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.deployment import Deployment
from clickprism.serve.bundle.untrusted import verify_apart
from clickprism.serve.scoring.batch import score_file
from clickprism.serve.settings import (
    TOKEN_VARIABLE,
    BundleSettings,
    ExportSettings,
    PublishSettings,
    RolloutSettings,
    ServeSettings,
)
from clickprism.serve.store.base import describe_store


def bundle(source: Path, /, *, out: Path, settings: Flat[BundleSettings], output: Flat[Output]) -> None:
    """Create a bundle from a trained ranker.

    A bundle is a folder with everything that is needed to serve a ranker. It never changes, and every file has a hash.
    It is written only if it gives the same scores as the ranker.

    ```bash
    clickprism model bundle runs/dla --out bundle
    clickprism model bundle runs/dla --examples 200 --naive runs/click --out bundle --replace
    ```

    Args:
        source: Folder written by train, experiment compare, relevance approximate fit or relevance impute fit.
        out: Folder of the bundle.
    """
    from clickprism.experiments.bundle import bundle_run

    output.result(bundle_run(source, out, settings))
    output.next("serve", out)


def verify(bundle: Path, /, *, output: Flat[Output]) -> None:
    """Verify the files and scores of a bundle.

    The hash of every file is checked, and the rankers must give the scores that are recorded in the bundle. They run in
    a separate process with limits on memory and time, so that even a hostile bundle can be verified.

    ```bash
    clickprism model verify bundle
    ```

    Args:
        bundle: Folder of the bundle.
    """
    found = Bundle.load(bundle)
    verify_apart(bundle)
    output.result(found)
    output.note("The bundle is intact.")


def score(
    bundle: Path, file: Path, /, *, out: Path, threads: int = 1, spreadsheet_safe: bool = False, output: Flat[Output]
) -> None:
    """Score documents with a bundle.

    The documents are LETOR text, or a table (.parquet, .csv, .tsv, .jsonl) whose columns have the names of the
    features. The scores are those that the service would return.

    ```bash
    clickprism model score bundle test.txt --out scores.csv
    clickprism model score bundle documents.parquet --threads 4 --out scores.parquet
    ```

    Args:
        bundle: Folder of the bundle.
        file: File with the documents.
        out: File for query_id, document_id and score, in the order of the documents (.csv, .tsv, .jsonl or .parquet).
        threads: Number of threads.
        spreadsheet_safe: In CSV and TSV files, write an apostrophe before ids that begin with = + - or @, which a
            spreadsheet would run as formulas. The ids are then no longer those of the documents.
    """
    if threads < 1:
        raise SettingError("threads", threads, "be at least 1")
    output.result(score_file(Bundle.load(bundle), file, out, threads=threads, spreadsheet_safe=spreadsheet_safe))


def export(
    bundle: Path,
    /,
    *,
    format_name: Annotated[str, Parameter(name=("--for", "--format"))],
    out: Path,
    settings: Flat[ExportSettings],
    output: Flat[Output],
) -> None:
    """Export a bundle to another system's format.

    The systems are: elasticsearch and opensearch (trees and linear rankers for the learning to rank plugin); solr
    (trees, linear rankers and small networks); vespa and onnx (every ranker on features); lightgbm, xgboost and ranklib
    (trees). The export is written only if a reader of the format gives the same scores as the ranker. Features keep the
    names of the bundle.

    ```bash
    clickprism model export bundle --for onnx --out ranker.onnx
    clickprism model export bundle --for opensearch --complete --feature-set shop --requests --out upload
    clickprism model export bundle --for solr --name ranker_v2 --out solr
    ```

    Args:
        bundle: Folder of the bundle.
        format_name: System or format: elasticsearch, opensearch, solr, vespa, onnx, lightgbm, xgboost or ranklib.
        out: File to write; a new folder for solr, for vespa and with --requests.
    """
    from clickprism.serve.export.export import export, holds, read_source

    holds(format_name)  # an unknown format is an error before anything is read
    output.result(export(read_source(bundle, settings), out, format_name=format_name))


def promote(bundle: Path, /, *, to: Path, keep: int = 10, output: Flat[Output]) -> None:
    """Make a bundle the current one of a deployment.

    The bundle is copied into the deployment and verified. Then the deployment switches to it in one step; services that
    serve the deployment follow within a second, without failed requests.

    ```bash
    clickprism model promote bundle --to deployment
    ```

    Args:
        bundle: Folder of the bundle.
        to: Folder of the deployment; it is created if it does not exist.
        keep: Number of previous bundles to keep for a rollback; older ones are deleted.
    """
    done = Deployment(to).promote(bundle, keep=keep)
    output.result(done)
    if done.before is None:
        output.next("serve", to)
    elif done.changed:
        output.note(f"To undo: {command_line('model', 'rollback', to)}")


def rollout(
    deployment: Path,
    log: Path | None = None,
    /,
    *,
    bundle: Path | None = None,
    stop: bool = False,
    every: timedelta | None = None,
    settings: Flat[RolloutSettings],
    output: Flat[Output],
) -> None:
    """Release a bundle gradually, and take it back if users prefer the current one.

    With `--bundle`, a rollout begins: `clickprism serve DEPLOYMENT` interleaves both rankings in a share of the
    requests. Log the `ranker` of each item with its impression. With a log, the clicks on both are counted: the new
    bundle is promoted if users prefer it, taken back if they prefer the current one, and else its share grows. The test
    is valid however often it is looked at.

    ```bash
    clickprism model rollout deployment --bundle runs/new/bundle
    clickprism model rollout deployment mylog --every 10m
    clickprism model rollout deployment --stop
    ```

    Args:
        deployment: Folder of the deployment.
        log: Click log with the interleaved searches.
        bundle: Folder of the bundle to release.
        stop: Take the new bundle back at once.
        every: Count again after this time, such as 10m, until the rollout ends.
    """
    from clickprism.log.store import LogStore
    from clickprism.serve.bundle import rollout

    target = Deployment(deployment)
    if every is not None and (log is None or every <= timedelta(0)):
        raise SettingError("every", str(every), "be a time above 0, and given together with a log")
    found = rollout.status(target) if bundle is None and log is None and not stop else None
    if bundle is not None:
        found = rollout.start(target, bundle, settings)
    if stop:
        found = rollout.stop(target)
    while log is not None and not stop:
        found = rollout.advance(target, LogStore.open(log, note=output.note))
        if every is None or found.outcome != "running":
            break
        output.note(found.reason)
        time.sleep(every.total_seconds())
    if found is None:
        raise SettingError("bundle", None, "name the bundle to release: there was no rollout yet")
    output.result(found)


def rollback(deployment: Path, /, *, output: Flat[Output]) -> None:
    """Return a deployment to its previous bundle.

    The previous bundle is verified first. Another rollback goes one bundle further back.

    ```bash
    clickprism model rollback deployment
    ```

    Args:
        deployment: Folder of the deployment.
    """
    output.result(Deployment(deployment).rollback())


def status(deployment: Path, /, *, output: Flat[Output]) -> None:
    """Show the current bundle of a deployment.

    ```bash
    clickprism model status deployment
    ```

    Args:
        deployment: Folder of the deployment.
    """
    output.result(Deployment(deployment).status())


def serve(source: Path, /, *, no_auth: bool = False, settings: Flat[ServeSettings], output: Flat[Output]) -> None:
    """Serve a bundle over HTTP.

    Requests need the token of the environment variable `CLICKPRISM_TOKEN`; without the variable a token is generated
    and printed. The password of a Redis server is read from `CLICKPRISM_REDIS_PASSWORD`. One JSON line for each request
    goes to standard error; with `--quiet` only errors. `--json` prints the address once the service listens. The paths
    are `/v1/rank`, `/v1/events`, `/v1/models`, `/metrics` and `/openapi.json`.

    To ask the service for a ranking, with one number for each feature of the bundle:
    `curl -H "Authorization: Bearer $CLICKPRISM_TOKEN" http://127.0.0.1:8000/v1/rank
    --json '{"documents": [{"id": "a", "features": [0.2, 1]}, {"id": "b", "features": [0.7, 0]}]}'`

    ```bash
    clickprism serve bundle
    clickprism serve deployment --store store --log mylog --workers 2
    ```

    Args:
        source: Folder of a bundle, of a deployment or of a project; the current bundle of a deployment is followed. A
            project serves its current ranker with its store, and its log receives the events.
        no_auth: Accept requests without a token; only on a loopback address.
    """
    import os

    from clickprism.project.run import Project, is_project
    from clickprism.serve.http.request import new_token
    from clickprism.serve.http.server import run

    if is_project(source):
        own = Project(source).service()
        source = own.pop("source")
        settings = replace(settings, **{name: own[name] for name in own if getattr(settings, name) is None})
    given = os.environ.get(TOKEN_VARIABLE)
    if no_auth and settings.token_file is not None:
        raise SettingError("no_auth", no_auth, "not be given together with --token-file")
    token = None if no_auth or settings.token_file is not None else new_token() if given is None else given
    run(
        source,
        settings,
        token=token,
        generated=token is not None and given is None,
        request_lines=not output.quiet,
        listening=output.result,
    )


def publish(log: Path | None = None, /, *, to: str, settings: Flat[PublishSettings], output: Flat[Output]) -> None:
    """Publish the click features of a log to a store.

    The new version is built beside the current one, checked, and made current in one step. Publishing the same content
    again does nothing, so the command can run on a schedule. The password of a Redis server is read from
    `CLICKPRISM_REDIS_PASSWORD`.

    ```bash
    clickprism store publish mylog --to store
    clickprism store publish mylog --features features.csv --to store
    clickprism store publish --features features.csv --to store
    ```

    Args:
        log: Click log whose current click features (`log features`) are published.
        to: Store to fill: a folder (LMDB), or redis://host:port/0?prefix=name.
    """
    from clickprism.log.store import LogStore
    from clickprism.serve.store import publish

    store = None if log is None else LogStore.open(log, note=output.note)
    with output.progress("reading") as progress:
        done = publish.publish(to, settings, log=store, progress=progress, note=output.note)
    output.result(done)
    output.next("store", "info", to)


def store_info(store: str, /, *, output: Flat[Output]) -> None:
    """Describe what a store contains.

    The result is the current version with its age, the number of pairs, and the names of the fields. The password of a
    Redis server is read from `CLICKPRISM_REDIS_PASSWORD`.

    ```bash
    clickprism store info store
    ```

    Args:
        store: Folder, or redis://host:port/0?prefix=name.
    """
    output.result(describe_store(store))
