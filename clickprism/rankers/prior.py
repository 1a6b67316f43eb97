"""What is known of a pair of texts before any click: BM25 over a corpus, the cosine of an untuned language model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import nn

from clickprism.data.bm25 import BM25, BM25Corpus
from clickprism.errors import DataError
from clickprism.rankers.similarity import Similarity
from clickprism.types import Float32, Int64


@final
class Prior:
    """Scores of a pair that need only its two texts and what is kept here (Askari et al. 2023 give BM25 alone).

    Attributes:
        corpus: what BM25 knows of the documents: how many have each word, and how long they are.
        similarity: the untuned language model; the mean state of a text is read once.
    """

    names: ClassVar[tuple[str, ...]] = ("bm25", "bm25_share", "cosine")

    def __init__(self, corpus: BM25Corpus, similarity: Similarity) -> None:
        self.corpus, self.similarity = corpus, similarity

    def scores(self, queries: Sequence[str], documents: Sequence[str], rows: Int64, others: Int64) -> Float32:
        """BM25, BM25 as a share of the most that the query allows, and the cosine, by rows of texts, [pairs, 3]."""
        words, share = self.corpus.score_texts(queries, documents, rows, others)
        cosine = self.similarity.score_rows(queries, documents, rows, others)
        return np.stack([words, share, cosine], axis=1).astype(np.float32)

    def files(self, tuned: nn.Module) -> dict[str, bytes]:
        """All that `of_files` needs: the corpus, and those weights that the tuned encoder does not have as well."""
        from safetensors.torch import save

        corpus, same = self.corpus, tuned.state_dict()
        about = {
            "bm25": {"k1": corpus.settings.k1, "b": corpus.settings.b, "plurals": corpus.settings.plurals},
            "documents": corpus.documents,
            "mean_length": corpus.mean_length,
            "tokens": self.similarity.tokens,
            "having": dict(sorted(corpus.having.items())),
        }
        own = {
            name: value.detach().contiguous().clone()
            for name, value in self.similarity.encoder.state_dict().items()
            if not torch.equal(value, same[name])
        }
        return {"corpus.json": json.dumps(about, ensure_ascii=False).encode(), "untuned.safetensors": save(own)}

    @classmethod
    def of_files(cls, files: dict[str, bytes], encoder: nn.Module, tokenizer: Any, padding: int) -> Prior:
        """The prior that `files` came from; the encoder is a copy of the tuned one, and is changed."""
        from safetensors.torch import load

        about, own = json.loads(files["corpus.json"]), load(files["untuned.safetensors"])
        state = encoder.state_dict()
        if any(name not in state or state[name].shape != value.shape for name, value in own.items()):
            raise DataError("the untuned weights do not fit the language model")
        encoder.load_state_dict(own, strict=False)
        having = {str(word): int(count) for word, count in about["having"].items()}
        corpus = BM25Corpus(BM25(**about["bm25"]), int(about["documents"]), float(about["mean_length"]), having)
        return cls(corpus, Similarity(tokens=int(about["tokens"]), parts=(encoder, tokenizer, padding)))
