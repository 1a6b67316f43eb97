"""`clickprism bundle`: a trained ranker as a folder that can be verified and served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clickprism.cli_old.options import OUTPUT, Json, Quiet
from clickprism.cli_old.output import Output, columns, command_line

if TYPE_CHECKING:
    from clickprism.serve.bundle import Bundle
    from clickprism.serve.language_bundle import JudgedTexts

EPILOG = (
    "Examples:\n\nclickprism bundle runs/dla --naive runs/click --examples 200 --out bundles/dla\n\n"
    "clickprism bundle runs/approximation --imputation stored --out bundles/adr\n\n"
    "clickprism bundle runs/imputation --judged test.qrel --queries queries.tsv --documents documents.tsv "
    "--out bundles/lm\n\n"
    "clickprism bundle --verify bundles/dla"
)


def command(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN|MODEL]",
            help="A folder of train, compare or demo, of an approximation, or of clickprism impute.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder of the bundle.", rich_help_panel=OUTPUT)
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option("--verify", metavar="DIR", help="Make none: check the files of this one, and how it scores."),
    ] = None,
    naive: Annotated[
        Path | None,
        typer.Option("--naive", metavar="MODEL", help="A ranker that took clicks for relevance, to compare with."),
    ] = None,
    imputation: Annotated[
        str | None,
        typer.Option(
            "--imputation",
            metavar="DIR|stored",
            help="Of an approximation: what clickprism impute wrote, or stored, where the online store has "
            "it; by default the mean of training.",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="By default that of the run.")] = "",
    feature_names: Annotated[
        Path | None,
        typer.Option(
            "--feature-names",
            metavar="FILE",
            help="One name a line, or a JSON list; by default those of the run, else feature_1, feature_2, ...",
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME=VALUE", help="For the model card, such as nDCG@10=0.51; repeatable."),
    ] = None,
    notes: Annotated[
        list[str] | None, typer.Option("--note", metavar="TEXT", help="For the model card; may be repeated.")
    ] = None,
    judged: Annotated[
        Path | None,
        typer.Option(
            "--judged",
            metavar="FILE",
            help="Grades by which a language model in int8 is judged, as TREC has them: query id, 0, document id, "
            "grade; by default it is compared with itself in single precision, on made-up texts.",
        ),
    ] = None,
    queries: Annotated[
        Path | None, typer.Option("--queries", metavar="FILE", help="The texts of the queries of --judged.")
    ] = None,
    documents: Annotated[
        Path | None, typer.Option("--documents", metavar="FILE", help="The texts of the documents of --judged.")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8/--no-int8", help="Whether a language model may be served in int8.")
    ] = True,
    examples: Annotated[
        int,
        typer.Option(
            "--examples",
            metavar="N",
            min=0,
            help="Queries of the run's log for the page of the service; the log is simulated or read again for them.",
        ),
    ] = 0,
    replace: Annotated[bool, typer.Option("--replace", help="An older bundle at the same place.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a bundle of a trained ranker, checked to score as it does; or verify one."""
    from clickprism.errors import SettingError
    from clickprism.serve.bundle import Bundle

    output = Output(json, quiet)
    if verify is not None:
        if source is not None or out is not None:
            raise SettingError("--verify", str(verify), "be given alone")
        from clickprism.serve.scorer import open_scorer

        bundle = Bundle.load(verify)
        open_scorer(bundle).warm()
        if bundle.manifest.naive is not None:
            open_scorer(bundle, role="naive").warm()
        _say(bundle, output, "verified")
        return
    if source is None or out is None:
        missing = "RUN" if source is None else "--out"
        raise SettingError(missing, None, "be given to make a bundle, or --verify to check one")
    from clickprism.experiments.bundle import bundle_run
    from clickprism.serve.export.read import names_from

    shown = None
    if examples:
        from clickprism.experiments.examples import examples_of_run

        shown = examples_of_run(source, naive=naive, most=examples).bytes()
    bundle = bundle_run(
        source,
        out,
        examples=shown,
        name=name,
        naive=naive,
        imputation=imputation,
        feature_names=() if feature_names is None else names_from(feature_names),
        metrics=dict(_metric(text) for text in metrics or ()),
        notes=notes or (),
        judged=_judged(judged, queries, documents),
        int8=int8,
        replace=replace,
    )
    _say(bundle, output, "made, and scores as its ranker")
    output.note(f"Next: {command_line('serve', out)}")


def _say(bundle: Bundle, output: Output, done: str) -> None:
    manifest = bundle.manifest
    facts: dict[str, Any] = {
        "bundle": str(bundle.folder),
        "version": bundle.version,
        "name": manifest.name,
        "kind": manifest.kind,
        "method": manifest.method.get("name"),
        "features": len(manifest.feature_names),
        "click_fields": len(manifest.click_fields),
        "naive": manifest.naive is not None,
        "metrics": manifest.metrics,
        "files": manifest.files,
    }
    rows = [
        ["version", bundle.version],
        ["ranker", f"{manifest.kind}, by {manifest.method.get('name', '?')}"],
        ["takes", f"{len(manifest.feature_names)} features, {len(manifest.click_fields)} click fields"],
        *(["note", note] for note in manifest.notes),
        *([name, f"{value:.4f}"] for name, value in manifest.metrics.items()),
        ["files", f"{len(manifest.files)}, each with its SHA-256"],
    ]
    output.result(columns([f"{manifest.name}: {done}", ""], rows), facts)


def _judged(grades: Path | None, queries: Path | None, documents: Path | None) -> JudgedTexts | None:
    from clickprism.errors import SettingError
    from clickprism.serve.language_bundle import read_judged

    if grades is None and queries is None and documents is None:
        return None
    if grades is None or queries is None or documents is None:
        raise SettingError(
            "--judged", None if grades is None else str(grades), "be given with --queries and --documents"
        )
    return read_judged(grades, queries=queries, documents=documents)


def _metric(text: str) -> tuple[str, float]:
    from clickprism.errors import SettingError

    name, _, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        raise SettingError("--metric", text, "be a name and a number, such as nDCG@10=0.51") from None
