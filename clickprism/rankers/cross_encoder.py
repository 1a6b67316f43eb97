"""The cross-encoder: a language model that reads a query and a document together (Zou et al. 2022, §4)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final, final

import numpy as np
import torch
from torch import nn

from clickprism.data.bm25 import BM25
from clickprism.data.texts import Texts
from clickprism.errors import DataError, SettingError
from clickprism.rankers.language_model import CrossEncoder, encoder_of, load_language_model
from clickprism.rankers.prior import Prior, Similarity, mean_state
from clickprism.rankers.text_tokens import (
    DOCUMENT,
    QUERY,
    Layout,
    Pairs,
    assemble,
    by_length,
    distinct_texts,
    pair_up,
    tokenise,
)
from clickprism.types import Float64, Int64

BUDGET: Final = 2048  # tokens at a time: few enough that pairs of a batch are of like length


def build_network(
    settings: CrossEncoder, corpus: Texts | None = None, *, known: Prior | None = None
) -> CrossEncoderNetwork:
    """Return a network with the weights of the language model and a head of zeros.

    Args:
        settings: Of the language model.
        corpus: The documents over which BM25 counts words; needed with `prior` only.
        known: The prior of a network of the same model and corpus, which remembers the texts it has encoded.
    """
    encoder, tokenizer, padding = load_language_model(settings.model)
    room = int(getattr(encoder.config, "max_position_embeddings", settings.tokens))
    if settings.tokens > room:
        raise SettingError("tokens", settings.tokens, f"be at most {room}, which the language model reads")
    if not settings.prior:
        return CrossEncoderNetwork(settings, encoder, tokenizer, padding)
    if known is not None:
        return CrossEncoderNetwork(settings, encoder, tokenizer, padding, known)
    if corpus is None:
        raise SettingError("corpus", None, "be given where scores by words are inputs, or set prior=false")
    similarity = Similarity(tokens=settings.tokens, parts=(deepcopy(encoder), tokenizer, padding))
    return CrossEncoderNetwork(settings, encoder, tokenizer, padding, Prior(BM25().corpus(corpus), similarity))


@final
class CrossEncoderNetwork(nn.Module):
    """Log odds of pairs [pairs] from a batch of tokens; `score_pairs` takes texts.

    If w is 0 (`residual` is false), the prior alone scores pairs, and the language model encodes each text once instead
    of each pair.
    """

    def __init__(
        self, settings: CrossEncoder, encoder: nn.Module, tokenizer: Any, padding: int, prior: Prior | None = None
    ) -> None:
        super().__init__()
        self.settings, self.tokenizer, self.prior = settings, tokenizer, prior
        self.layout = Layout.of(tokenizer, padding)
        self.encoder = encoder
        self.width = int(encoder.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self.head = nn.Linear(self.width, 1)
        nn.init.zeros_(self.head.bias)
        nn.init.zeros_(self.head.weight)
        self.slopes: torch.Tensor
        self.register_buffer("slopes", torch.zeros(len(Prior.names) if settings.prior else 0))

    def forward(
        self, tokens: torch.Tensor, types: torch.Tensor, kinds: torch.Tensor, prior: torch.Tensor
    ) -> torch.Tensor:
        """Return the log odds w . h + u . s + b of each pair, [pairs].

        Args:
            tokens: From `assemble`, [pairs, longest].
            types: Type of each token, [pairs, longest].
            kinds: Whether a token is of the query or the document, [pairs, longest].
            prior: The scores s of `Prior.scores`, [pairs, scores]; [pairs, 0] without a prior.
        """
        odds: torch.Tensor = self.head(self.pooled(tokens, types, kinds)).squeeze(-1) + prior @ self.slopes
        return odds

    def pooled(self, tokens: torch.Tensor, types: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        """Return the representation h of each pair, [pairs, width]; h_cls if the pooling is the paper's."""
        given = {"token_type_ids": types} if self.settings.pooling != "match" and self._typed else {}
        states: torch.Tensor = self.encoder(
            input_ids=tokens, attention_mask=(kinds >= 0).long(), **given
        ).last_hidden_state
        if self.settings.pooling == "cls":
            return states[:, 0]
        if self.settings.pooling == "mean":
            return mean_state(states, kinds >= 0)
        query, document = (mean_state(states, kinds == kind) for kind in (QUERY, DOCUMENT))
        return self.width * nn.functional.normalize(query, dim=-1) * nn.functional.normalize(document, dim=-1)

    @property
    def residual(self) -> bool:
        """Return whether the log odds depend on h at all."""
        return bool(self.head.weight.any())

    @property
    def _typed(self) -> bool:
        return getattr(self.encoder.config, "type_vocab_size", 0) > 1

    def batch(self, pairs: Pairs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return pairs as the tensors that the network takes."""
        tokens, types, kinds = (torch.from_numpy(each) for each in assemble(pairs))
        return tokens, types, kinds, torch.from_numpy(pairs.prior)

    def pairs(self, queries: Sequence[str], documents: Sequence[str]) -> Pairs:
        """Return the tokens of pairs of texts; repeated texts are tokenised once."""
        if len(queries) != len(documents):
            raise DataError(f"{len(queries)} queries but {len(documents)} documents")
        (names, rows), (others, other_rows) = distinct_texts(queries), distinct_texts(documents)
        return self.pairs_of_rows(names, others, rows, other_rows)

    def pairs_of_rows(self, queries: Sequence[str], documents: Sequence[str], rows: Int64, others: Int64) -> Pairs:
        """Return the tokens of pairs; `rows` and `others` are the rows of each pair's query and document."""
        settings = self.settings
        known = None if self.prior is None else self.prior.scores(queries, documents, rows, others)
        return pair_up(
            tokenise(self.tokenizer, queries, most=settings.query_tokens),
            tokenise(self.tokenizer, documents, most=settings.tokens),
            rows,
            others,
            layout=self.layout,
            most=settings.tokens,
            most_query=settings.query_tokens,
            prior=known,
        )

    def score_pairs(self, queries: Sequence[str], documents: Sequence[str]) -> Float64:
        """Return the probability of a click in the first slot, [pairs], in (0, 1)."""
        return probabilities(self.odds(self.pairs(queries, documents)))

    def odds(self, pairs: Pairs, *, budget: int = BUDGET) -> Float64:
        """Return the log odds of pairs, in batches of similar length, [pairs]."""
        if not self.residual:
            return self.prior_odds(pairs)
        odds = np.empty(len(pairs), dtype=np.float64)
        training = self.training
        self.eval()
        with torch.inference_mode():
            for rows in by_length(pairs.lengths, budget=budget):
                odds[rows] = self(*self.batch(pairs.take(rows))).double().numpy()
        self.train(training)
        return odds

    def prior_odds(self, pairs: Pairs) -> Float64:
        """Return u . s + b, the log odds of the prior alone, [pairs]."""
        with torch.inference_mode():
            odds = torch.from_numpy(pairs.prior).double() @ self.slopes.double() + self.head.bias.double()
            return np.asarray(odds.numpy(), dtype=np.float64)

    def layers(self) -> nn.ModuleList:
        """Return the layers of the language model, lowest first."""
        wanted = self.encoder.config.num_hidden_layers  # type: ignore[union-attr]
        for module in self.encoder.modules():
            if isinstance(module, nn.ModuleList) and len(module) == wanted:
                return module
        raise DataError(
            "the layers of the language model are not known",
            remedy="Freeze none: frozen=0, frozen_embeddings=false",
        )

    def files(self) -> dict[str, bytes]:
        """Return what `of_files` needs: weights, the model's config, the tokenizer, the prior."""
        from safetensors.torch import save

        tensors = {key: value.detach().contiguous().clone() for key, value in self.state_dict().items()}
        about_encoder: dict[str, Any] = self.encoder.config.to_dict()  # type: ignore[union-attr, operator]
        about_encoder.pop("_name_or_path", None)  # a folder of the machine that trained it
        config = json.dumps(about_encoder, indent=1, sort_keys=True)
        about = {"padding": self.layout.padding}
        more = {} if self.prior is None else self.prior.files(self.encoder)
        return {
            **more,
            "network.safetensors": save(tensors),
            "config.json": config.encode(),
            "tokenizer.json": self.tokenizer.to_str().encode(),
            "about.json": json.dumps(about).encode(),
        }

    @classmethod
    def of_files(cls, settings: CrossEncoder, files: dict[str, bytes]) -> CrossEncoderNetwork:
        """Return the network that `files` came from; no code in them is run."""
        from safetensors.torch import load
        from tokenizers import Tokenizer

        config = json.loads(files["config.json"])
        padding = int(json.loads(files["about.json"])["padding"])
        tensors = load(files["network.safetensors"])
        tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())

        def made() -> CrossEncoderNetwork:
            return cls(settings, encoder_of(config), tokenizer, padding)

        if settings.prior != ("corpus.json" in files):
            raise DataError("the settings and the files differ in whether there is a prior")
        with torch.device("meta"):  # first without memory, so that a false config cannot take more than the file has
            expected = {key: value.shape for key, value in made().state_dict().items()}
        if expected != {key: value.shape for key, value in tensors.items()}:
            raise DataError("the weights do not fit the config of the language model")
        network = made()
        network.load_state_dict(tensors)
        if settings.prior:
            network.prior = Prior.of_files(files, deepcopy(network.encoder), tokenizer, padding)
        return network.requires_grad_(False).eval()


def probabilities(odds: Float64) -> Float64:
    """Return log odds as probabilities that are never 0 or 1."""
    from scipy.special import expit

    small = 1e-6
    return np.clip(expit(odds), small, 1 - small)
