"""`clickprism data impressions`: logs of recommenders."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clickprism.cli_old.options import OUTPUT, Config, Json, Quiet, Set, settings_of
from clickprism.cli_old.output import Output, columns, command_line

if TYPE_CHECKING:
    from clickprism.data.impression_parts import ImpressionParts
    from clickprism.experiments import ExperimentSettings

IMPRESSIONS = (
    "Examples:\n\nclickprism data impressions log.csv.gz\n\n"
    "clickprism data impressions train.csv --validation valid.csv --test test.csv --out data/shop\n\n"
    "clickprism data impressions log.jsonl --set data.impressions.item=sku "
    "--set 'data.impressions.categorical=[\"zip\"]' --out data/shop"
)


def impressions(
    train: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The log: CSV, TSV or JSON lines, plain, .gz or .zst, or Parquet."),
    ],
    *,
    validation: Annotated[
        Path | None, typer.Option("--validation", metavar="FILE", help="A log to validate by; else FILE is split.")
    ] = None,
    test: Annotated[Path | None, typer.Option("--test", metavar="FILE", help="A log to measure on.")] = None,
    on_error: Annotated[
        Literal["raise", "quarantine"],
        typer.Option(
            "--on-error", metavar="raise|quarantine", help="End at a broken row, or leave its request out and count it."
        ),
    ] = "raise",
    quarantine_file: Annotated[
        Path | None,
        typer.Option("--quarantine-file", metavar="FILE", help="Write what was left out to this file, as JSON lines."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="The folder for clicks.npz, held_out.npz, vocabulary.json and settings.toml.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    config: Config = None,
    sets: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read an impression log of a recommender: a row an item that was shown; say what it holds, write its clicks."""
    from clickprism.errors import SettingError
    from clickprism.experiments import load_data

    settings = settings_of(
        config,
        sets,
        data__source="impressions",
        data__train=str(train),
        data__validation=None if validation is None else str(validation),
        data__test=None if test is None else str(test),
        data__on_error=on_error,
    )
    data = load_data(settings.data)
    log = data.log
    if log is None:
        raise SettingError("data.source", settings.data.source, "be 'impressions' for this command")
    if quarantine_file is not None:
        lines = [f"{line.to_json()}\n" for account in log.accounts for line in account.quarantined]
        quarantine_file.write_text("".join(lines), encoding="utf-8")
    output, found = Output(json, quiet), _facts(log)
    output.result(_text(found), found)
    codes = settings.data.names == "codes"
    for hint in _hints(log, codes=codes):
        output.note(hint)
    if out is not None:
        _write(out, settings, log)
        ranker = ["--ranker", "attention"] if codes and log.vocabulary.categorical else []
        last = [] if log.clicks["validation"].clicks.any() else ["--set", "evaluation.validation=none"]
        words = ["--config", out / "settings.toml", "--method", "dla", *ranker, *last, "--out", "runs/dla"]
        output.note(f"Written to {out}. Next: {command_line('train', *words)}")


def _hints(log: ImpressionParts, *, codes: bool) -> Iterator[str]:
    """What is not wrong with a log, but worth knowing before training on it."""
    from clickprism.data.impression_parts import UNGRADED
    from clickprism.settings import toml_value

    if not log.graded:
        yield UNGRADED
    for part, lacks in (("validation", "choose an epoch by"), ("test", "measure by")):
        if not log.clicks[part].clicks.any():
            yield (
                f"The {part} part has no click, so there is nothing to {lacks}: give a longer log, or one log for each "
                "part (--validation FILE --test FILE)"
                + (", or train with --set evaluation.validation=none" if part == "validation" else "")
            )
    for name in log.once() if codes else ():
        words = shlex.quote(f"data.impressions.ignore={toml_value([name])}")
        yield (
            f"Most names of column {name!r} come in one list only, so there is nothing to learn from them: is it a "
            f"time or an id? Leave it out by --set {words}"
        )


def _facts(log: ImpressionParts) -> dict[str, Any]:
    """What a log holds, as plain values."""
    parts = {}
    for part, clicks in log.clicks.items():
        parts[part] = {
            "lists": len(clicks.lists),
            "documents": clicks.lists.documents,
            "requests": clicks.sessions,
            "clicks": int(clicks.clicks.sum()),
            "seen": None if clicks.seen is None else int(clicks.seen.sum()),
            "positions": clicks.max_position,
        }
    return {
        "files": [
            {
                "file": str(account.file),
                "columns": dict(account.columns),
                "rows": account.rows,
                "duplicates": account.duplicates,
                "gaps": account.gaps,
                "unknown": dict(account.unknown),
                "quarantined": len(account.quarantined),
            }
            for account in log.accounts
        ],
        "parts": parts,
        "graded": log.graded,
        "features": {
            name: "numbers" if values is None else len(values) for name, values in log.vocabulary.columns.items()
        },
        "vocabulary": log.vocabulary.hash,
    }


def _text(found: dict[str, Any]) -> str:
    tables = []
    for file in found["files"]:
        roles = ", ".join(role if role == name else f"{role} ({name})" for role, name in file["columns"].items())
        unknown = ", ".join(f"{count:,} ({name})" for name, count in file["unknown"].items() if count)
        rows = [
            ["rows", f"{file['rows']:,}"],
            ["columns", roles],
            ["rows said twice, counted once", f"{file['duplicates']:,}"],
            ["requests that skip a position", f"{file['gaps']:,}"],
            ["rows left out", f"{file['quarantined']:,}"],
            ["documents with an unknown name", unknown or "0"],
        ]
        tables.append(columns([file["file"], ""], rows))
    header = ["part", "lists", "documents", "requests", "clicks", "seen", "positions"]
    body = [
        [part, *["-" if values[name] is None else f"{values[name]:,}" for name in header[1:]]]
        for part, values in found["parts"].items()
    ]
    kinds = [
        [name, "numbers" if kind == "numbers" else f"{kind:,} names and the unknown"]
        for name, kind in found["features"].items()
    ]
    tables += [columns(header, body), columns(["feature", "holds"], kinds) if kinds else "no features"]
    return "\n\n".join(tables)


def _write(out: Path, settings: ExperimentSettings, log: ImpressionParts) -> None:
    """The clicks, the vocabulary, and settings by which `train` finds the log again."""
    from clickprism._util.files import make_folder
    from clickprism.data.clicks import save_clicks
    from clickprism.settings import plain, to_toml

    make_folder(out)
    save_clicks(log.clicks["train"], out / "clicks.npz")
    save_clicks(log.clicks["validation"], out / "held_out.npz")
    log.vocabulary.save(out / "vocabulary.json")
    data = {name: value for name, value in plain(settings.data).items() if name != "synthetic"}
    data |= {part: str(Path(data[part]).absolute()) for part in log.clicks if data[part] is not None}
    values = {"data": data, "evaluation": {"validation": "clicks"}}
    (out / "settings.toml").write_text(to_toml(values), encoding="utf-8")
