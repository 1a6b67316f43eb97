"""ONNX Runtime, as a service wants it: few threads, none that spin, no files but those it is given."""

from __future__ import annotations

from typing import Any

from clickprism.errors import DataError, MissingExtraError
from clickprism.serve.onnx_graph import check_graph


def open_session(content: bytes, *, threads: int, file: object, varying: bool = False) -> Any:
    """A session over a graph that was checked; several threads may run it at a time.

    Args:
        content: the graph.
        threads: that one run may use.
        file: for errors.
        varying: shapes differ from run to run, so that no plan of memory is kept for each.
    """
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("serve", "scoring by a network") from None
    check_graph(content, file=file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.enable_mem_pattern = not varying
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise DataError(
            f"cannot be run by ONNX Runtime ({first})", file=file, remedy="Create the bundle again"
        ) from None
