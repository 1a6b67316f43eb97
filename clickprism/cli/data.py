"""`clickprism data`: inspect judged lists, check public data sets, write the embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from clickprism._util.files import make_folder, write_file
from clickprism.cli.output import Flat, Output
from clickprism.data.letor import FileFacts, FilesFacts, scan_letor, write_letor
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.errors import DataError, SettingError


def info(
    *files: Path,
    on_error: Literal["raise", "quarantine"] = "raise",
    quarantine_file: Path | None = None,
    output: Flat[Output],
) -> None:
    """Describe files of judged lists.

    The files are LETOR, SVMlight or ranklib text, plain, .gz or .zst. The result is the number of lists, documents
    and features, and the share of each grade.

    ```bash
    clickprism data info train.txt test.txt
    clickprism data info train.txt --on-error quarantine --quarantine-file broken.jsonl
    ```

    Args:
        files: LETOR text files.
        on_error: Stop at the first broken line (raise), or skip and count broken lines (quarantine).
        quarantine_file: Write the skipped lines to this file, as JSON lines.
    """
    if not files:
        raise SettingError("files", None, "name at least one file")
    readings = {file: scan_letor(file, missing="nan", on_error=on_error) for file in files}
    if quarantine_file is not None:
        lines = [f"{line.to_json()}\n" for reading in readings.values() for line in reading.quarantined]
        write_file(quarantine_file, "".join(lines))
    described = [FileFacts.of(file, it.judged, quarantined=len(it.quarantined)) for file, it in readings.items()]
    output.result(FilesFacts(tuple(described)))


def check(name: str | None = None, folder: Path | None = None, /, *, output: Flat[Output]) -> None:
    """Check the files of a public data set.

    Without arguments the result is the list of data sets that clickprism knows. With a name and a folder it is what
    the folder contains of that data set and what is missing; the exit code is 1 if it is not complete.

    ```bash
    clickprism data check
    clickprism data check mq2008 data/MQ2008
    ```

    Args:
        name: Name of a data set, such as mq2008.
        folder: Folder with its files, plain, .gz or .zst.
    """
    from clickprism.data.recipes import RECIPES, Known, check

    if name is None:
        output.result(Known(dict(RECIPES)))
        return
    if folder is None:
        raise SettingError("folder", None, f"name the folder with the files of {name}")
    report = check(name, folder)
    output.result(report)
    if not report.ok:
        raise DataError(f"the files of {name} are not complete", file=folder)


def generate(*, out: Path, settings: Flat[SyntheticSettings], output: Flat[Output]) -> None:
    """Write the embedded data as LETOR files.

    ```bash
    clickprism data generate --out data/embedded
    clickprism data generate --train-queries 200 --seed 3 --out data/small
    ```

    Args:
        out: Folder for train.txt, validation.txt and test.txt.
    """
    make_folder(out)
    dataset, described = synthetic(settings), []
    for part in ("train", "validation", "test"):
        judged, file = getattr(dataset, part), out / f"{part}.txt"
        write_letor(judged, file)
        described.append(FileFacts.of(file, judged))
    output.result(FilesFacts(tuple(described)))
    files = [word for part in ("train", "validation", "test") for word in (f"--data.{part}", out / f"{part}.txt")]
    output.next("train", "--data.source", "files", *files, "--out", "runs/dla")
