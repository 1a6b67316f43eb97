"""The demo: embedded data, users with position bias, raw clicks, two methods that correct the bias, and labels."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clickprism._util.files import atomic_folder
from clickprism._util.progress import Progress, no_progress
from clickprism._util.tables import Table
from clickprism.experiments.bundle import bundle_run, run_examples
from clickprism.experiments.compare import compare_methods
from clickprism.experiments.data import load_raw
from clickprism.experiments.results import Results, Run, write_results
from clickprism.experiments.settings import DemoSettings, ExperimentSettings
from clickprism.experiments.train import MODEL
from clickprism.model import Model
from clickprism.serve.settings import BundleSettings, PublishSettings
from clickprism.types import Lists

if TYPE_CHECKING:
    from clickprism.serve.bundle.bundle import Bundle

DEBIASED = "dla"
NAIVE = "click"
BUNDLE, STORE = "bundle", "store"
STORED = 300
SERVING = ("onnx", "onnxruntime", "safetensors", "lmdb", "duckdb", "pyarrow")
TITLE = "clickprism: a click is relevance times observation"


@dataclass(frozen=True, eq=False)
class Demo:
    """The result of the demo.

    Attributes:
        report: The report, a page to open in a browser.
        model: Folder of the debiased model.
        bundle: Folder of the bundle; None if the packages for serving are not installed.
        store: Folder of the online store; None if the packages for serving are not installed.
        results: The comparison.
    """

    report: Path
    model: Path
    bundle: Path | None
    store: Path | None
    results: Results

    def tables(self) -> list[Table]:
        """Return the tables of the comparison."""
        return self.results.tables()


def run_demo(settings: DemoSettings, *, out: Path, jobs: int = 0, progress: Progress = no_progress) -> Demo:
    """Run the demo: write the report, the models of all runs, and the debiased model to model/.

    Among the debiased models, validation chooses the best. If the packages for serving are installed, bundle/ is ready
    to be served, and store/ has the features of the queries on its page and of some test queries.
    """
    results = compare_methods(settings, out=out, jobs=jobs, progress=progress)
    report = write_results(results, out, title=TITLE, next_commands=next_commands(settings, out))
    best = max(results.of(DEBIASED), key=lambda run: max(run.values, default=0.0))
    with atomic_folder(out / MODEL) as draft:
        shutil.copytree(out / f"{DEBIASED}-{best.seed}" / MODEL, draft, dirs_exist_ok=True)
    served = can_serve()
    if served:
        write_served(settings, out, best)
    return Demo(report, out / MODEL, out / BUNDLE if served else None, out / STORE if served else None, results)


def can_serve() -> bool:
    """Return whether the packages that a bundle and a store need are installed."""
    return all(find_spec(name) is not None for name in SERVING)


def write_served(settings: ExperimentSettings, out: Path, run: Run) -> Bundle:
    """Create bundle/ from the debiased model and the one trained on raw clicks, and store/ with features.

    The store has the queries on the page of the bundle, and some test queries.
    """
    from clickprism.serve.store.publish import publish

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
    """Return commands to try after the demo."""
    folder = shlex.quote(str(out))
    served = [f"{program} serve {folder}/{BUNDLE} --store {folder}/{STORE}"] if can_serve() else []
    return [
        *served,
        f"{program} evaluate judged {folder}/{NAIVE}-{settings.seed} {folder} --measure nDCG@10 --measure MRR",
        f"{program} experiment compare --config {folder}/settings.toml --user ubm --jobs 2 --out runs/ubm",
        f"{program} train --config {folder}/settings.toml --method {DEBIASED} --ranker lambdamart --out runs/trees",
    ]
