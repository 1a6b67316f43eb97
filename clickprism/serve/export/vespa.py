"""Vespa: the ranker as an ONNX model, and the rank profile that uses it.

Trees and networks are the graph of the format `onnx`, which Vespa evaluates by ONNX Runtime, as the check does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clickprism.serve.export import onnx
from clickprism.serve.export.export import Package, Source
from clickprism.types import Float32, Float64

PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NOTE: Final = "copy models/ into the application package, and the .profile into schemas/SCHEMA/; fill in its functions"
PROFILE: Final = """\
rank-profile {model} inherits default {{
    onnx-model {model} {{
        file: {path}
        input "features": model_features
        output "scores": scores
    }}
{functions}\
    function model_features() {{
        expression: tensor<float>(d0[1],d1[{width}]):[[{names}]]
    }}
    second-phase {{
        expression: sum(onnx({model}).scores)
    }}
}}
"""


def export(source: Source) -> Package:
    """Return the ranker in `models/`, and its rank profile NAME.profile."""
    names, graph = source.feature_names, onnx.export(source)
    model = re.sub(r"\W", "_", source.name)
    model = model if PLAIN.fullmatch(model) else f"m_{model}"
    path = f"models/{model}.onnx"
    functions = "".join(  # of the features that are no rank feature of Vespa by their name
        f"    function {name}() {{\n        expression: attribute({name})\n    }}\n"
        for name in names
        if PLAIN.fullmatch(name)
    )
    profile = PROFILE.format(
        model=model, path=path, functions=functions, width=len(names), names=", ".join(names)
    ).encode()

    def read(files: Mapping[str, bytes], rows: Float32) -> Float64:
        return onnx.read({"model.onnx": files[path]}, rows)

    files = {path: graph.files["model.onnx"], f"{source.name}.profile": profile}
    return Package(files, read, notes=(NOTE,), forest=graph.forest)
