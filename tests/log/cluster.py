"""A real standalone cluster of Spark on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.log.conftest import QUICK

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
DEFAULTS = {
    **QUICK,
    "spark.executor.extraJavaOptions": QUICK["spark.driver.extraJavaOptions"],
    "spark.executor.memory": "600m",
    "spark.executor.cores": "1",
}


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2, seconds: float = 240) -> Iterator[dict[str, str]]:
    """Start a master and workers of one core; gives the environment for a driver, with the address in `MASTER`."""
    conf = folder / "conf"
    conf.mkdir(parents=True)
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in DEFAULTS.items()))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
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
        log = start("master", MASTER, *common, "--port", str(port))
        wait_for(log, "Starting Spark master", 1, seconds)
        for number in range(workers):
            place = ["--cores", "1", "--memory", "1g", "--port", "0", "--work-dir", str(folder / f"work{number}")]
            start(f"worker{number}", WORKER, *common, *place, address)
        wait_for(log, "Registering worker", workers, seconds)
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def wait_for(log: Path, words: str, times: int, seconds: float) -> None:
    """Wait until a log says something so many times."""
    end = time.monotonic() + seconds
    while log.read_text(errors="replace").count(words) < times:
        if time.monotonic() > end:
            raise TimeoutError(log.read_text(errors="replace")[-2000:])
        time.sleep(0.2)
