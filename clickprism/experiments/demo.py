"""The demo: embedded data, biased users, the floor, two ways to debias, the ceiling."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clickprism.experiments.compare import Run, compare_methods
from clickprism.experiments.results import Results, results_of, write_results
from clickprism.experiments.settings import DemoSettings, ExperimentSettings
from clickprism.experiments.stages import load_raw
from clickprism.experiments.train import MODEL
from clickprism.model import Model
from clickprism.serve.settings import BundleSettings, PublishSettings
from clickprism.types import Lists

if TYPE_CHECKING:
    from clickprism.serve.bundle import Bundle

DEBIASED = "dla"
NAIVE = "click"
BUNDLE, STORE = "bundle", "store"
STORED = 300
SERVING = ("onnx", "onnxruntime", "safetensors", "lmdb", "duckdb", "pyarrow")
TITLE = "clickprism: a click is relevance times observation"


def run_demo(
    settings: DemoSettings, *, out: Path, jobs: int = 2, on_run: Callable[[Run], None] | None = None
) -> Results:
    """Run the demo into a folder: the report, the table, a model a method and seed, and in model/ the debiased one.

    Of the debiased models the one that was best in validation is taken; the test part has no say. Where the parts that
    serve are installed, bundle/ is ready to be served, and store/ has features of the queries on its page and of some
    test queries.
    """
    results = results_of(settings, compare_methods(settings, out=out, jobs=jobs, on_run=on_run))
    write_results(results, out, title=TITLE, next_commands=next_commands(settings, out))
    best = max(results.of(DEBIASED), key=lambda run: max(run.values, default=0.0))
    shutil.rmtree(out / MODEL, ignore_errors=True)
    shutil.copytree(out / f"{DEBIASED}-{best.seed}" / MODEL, out / MODEL)
    if can_serve():
        write_served(settings, out, best)
    return results


def can_serve() -> bool:
    """Whether all is installed that a bundle and a store need."""
    return all(find_spec(name) is not None for name in SERVING)


def write_served(settings: ExperimentSettings, out: Path, run: Run) -> Bundle:
    """Make bundle/ of the debiased model, the naive one beside it, and store/ of features.

    These are of the queries on the page of the bundle, and of some test queries.
    """
    from clickprism.experiments.bundle import bundle_run
    from clickprism.experiments.examples import run_examples
    from clickprism.serve.publish import publish

    debiased, naive = out / f"{DEBIASED}-{run.seed}", out / f"{NAIVE}-{run.seed}"
    models = Model.load(debiased / MODEL), Model.load(naive / MODEL)
    examples = run_examples(settings, *models, seed=run.seed, observation=run.observation)
    raw = load_raw(settings.data)
    seen = np.isin(raw.train.lists.query_ids, [query.id for query in examples.queries])
    stored = [raw.train.lists.take(seen), raw.test.lists.take(range(min(STORED, len(raw.test.lists))))]
    notes = ("Created by clickprism demo, from generated data and simulated users.",)
    described = BundleSettings(name="demo", naive=naive, notes=notes, replace=True)
    bundle = bundle_run(debiased, out / BUNDLE, described, examples=examples.bytes())
    with tempfile.TemporaryDirectory(dir=out) as folder:
        table = Path(folder) / "features.parquet"
        write_features(stored, bundle.manifest.feature_names, table)
        shutil.rmtree(out / STORE, ignore_errors=True)
        publish(out / STORE, PublishSettings(features=table))
    return bundle


def write_features(parts: Sequence[Lists], names: Sequence[str], file: Path) -> None:
    """Write raw features for `store publish`; documents without ids are numbered within their list, from 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.concat_tables([pa.table(_columns(lists, names)) for lists in parts]), file)


def _columns(lists: Lists, names: Sequence[str]) -> dict[str, Any]:
    places = np.arange(lists.documents) - lists.offsets[lists.list_of] + 1
    ids = [f"d{place}" for place in places.tolist()] if lists.document_ids is None else lists.document_ids.tolist()
    columns = {"query_id": lists.query_ids[lists.list_of].tolist(), "document_id": ids}
    return columns | {name: lists.features[:, place] for place, name in enumerate(names)}


def next_commands(settings: ExperimentSettings, out: Path, *, program: str = "clickprism") -> list[str]:
    """What to try after the demo."""
    folder = shlex.quote(str(out))
    served = [f"{program} serve {folder}/{BUNDLE} --store {folder}/{STORE}"] if can_serve() else []
    return [
        *served,
        f"{program} evaluate {folder}/{NAIVE}-{settings.seeds[0]} {folder} --measure nDCG@10 --measure MRR",
        f"{program} compare --config {folder}/settings.toml --user ubm --jobs 2 --out runs/ubm",
        f"{program} train --config {folder}/settings.toml --method {DEBIASED} --ranker lambdamart --out runs/trees",
    ]
