"""A real standalone cluster of Spark on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.log.conftest import QUICK
from tests.waiting import LIMIT, reserved_port, until

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
DEFAULTS = {
    **QUICK,
    "spark.executor.extraJavaOptions": QUICK["spark.driver.extraJavaOptions"],
    "spark.executor.memory": "600m",
    "spark.executor.cores": "1",
}


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2) -> Iterator[dict[str, str]]:
    """Start a master and workers of one core; gives the environment for a driver, with the address in `MASTER`."""
    conf = folder / "conf"
    conf.mkdir(parents=True)
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in DEFAULTS.items()))
    with reserved_port() as port:
        yield from _running(folder, conf, f"spark://127.0.0.1:{port}", workers)


def _running(folder: Path, conf: Path, address: str, workers: int) -> Iterator[dict[str, str]]:
    environment = os.environ | {
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK["spark.driver.extraJavaOptions"],
        "PYSPARK_PYTHON": sys.executable,
        "MASTER": address,
    }
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *words]
        with log.open("wb") as stream:
            process = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream, cwd=folder)
        started.append(process)
        return log

    try:
        log = start("master", MASTER, *common, "--port", address.rpartition(":")[2])
        until(lambda: "Starting Spark master" in log.read_text(errors="replace"))
        for number in range(workers):
            place = ["--cores", "1", "--memory", "1g", "--port", "0", "--work-dir", str(folder / f"work{number}")]
            start(f"worker{number}", WORKER, *common, *place, address)
        until(lambda: log.read_text(errors="replace").count("Registering worker") == workers)
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(LIMIT)
