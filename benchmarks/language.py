"""The language model online: CPU time of searches by PyTorch with fixed padding, and what each step takes off it.

Half of the searches repeat an earlier one, as in a year of a search engine's log (Baeza-Yates et al., SIGIR 2007);
which one is drawn uniformly of all before (Simon's process, whose queries follow Zipf's law). One thread for all.
`python -m benchmarks.language` prints the steps: titles and whole abstracts of NFCorpus, where
`../shared/data/nfcorpus` or the folder that CLICKPRISM_NFCORPUS names has it; else made-up texts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.base import Result
from clickprism.rankers.cross_encoder import CrossEncoderNetwork
from clickprism.rankers.language_model import CrossEncoder
from clickprism.serve.onnx.language import language_files
from clickprism.serve.scoring.language import LanguageReader, TextCache
from clickprism.types import Float64
from reproduce.common.nfcorpus import nfcorpus

SEARCHES, FOUND = 12, 50
PADDED = 128  # as the tokenizer.json of MiniLM pads, and cuts, every text


class Search(NamedTuple):
    """A query with the texts that it found."""

    query: str
    texts: list[str]


def texts_of(*, titles: bool) -> tuple[list[str], list[str]]:
    """Queries and documents."""
    folder = Path(os.environ.get("CLICKPRISM_NFCORPUS", Path(__file__).parents[2] / "shared" / "data" / "nfcorpus"))
    if folder.is_dir():
        found = nfcorpus(folder, "test")
        documents = [text.split(" abstract ")[0] if titles else text for text in found.documents.texts]
        return found.queries.texts, documents
    rng = np.random.default_rng(1)
    words = np.array(["heart", "diet", "cancer", "protein", "study", "risk", "milk", "vitamin", "plant", "blood"])
    lengths = rng.lognormal(2.8, 0.4, 1000) if titles else rng.normal(220, 75, 1000).clip(14)
    return [" ".join(rng.choice(words, 4)) for _ in range(300)], [" ".join(rng.choice(words, int(n))) for n in lengths]


def traffic(queries: list[str], documents: list[str]) -> list[Search]:
    """Searches, one after the other."""
    rng = np.random.default_rng(0)
    new = iter(rng.permutation(len(queries)).tolist())
    made: list[Search] = []
    again = rng.permuted(np.arange(SEARCHES - 1) % 2 == 0)
    for place in range(SEARCHES):
        if place and again[place - 1]:
            made.append(made[int(rng.integers(len(made)))])
        else:
            made.append(Search(queries[next(new)], rng.choice(np.array(documents, dtype=object), FOUND).tolist()))
    return made


def fixed(network: CrossEncoderNetwork, search: Search) -> Float64:
    """Log odds by PyTorch, all pairs padded to the most tokens."""
    with torch.inference_mode():
        pairs = network.pairs([search.query] * len(search.texts), search.texts)
        tokens, types, kinds, prior = network.batch(pairs)
        short, pad = network.settings.tokens - tokens.shape[1], torch.nn.functional.pad
        found = network(pad(tokens, (0, short)), pad(types, (0, short)), pad(kinds, (0, short), value=-1), prior)
        return np.asarray(found.double().numpy())


def by(reader: LanguageReader) -> Callable[[Search], Float64]:
    """Log odds as they are served."""
    return lambda search: reader.odds(*search)


def steps(*, titles: bool, tokens: int) -> dict[str, float]:
    """CPU seconds of the same searches by each way."""
    torch.set_num_threads(1)
    network = CrossEncoder(tokens=tokens, prior=False).build().requires_grad_(False).eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.nn.init.normal_(network.head.weight, std=0.05)
    searches = traffic(*texts_of(titles=titles))
    files = language_files(network)
    uncached = LanguageReader(*files)
    uncached.known = TextCache(most=0)
    ways: dict[str, Callable[[Search], Float64]] = {
        "PyTorch, fixed padding": lambda search: fixed(network, search),
        "PyTorch, by length": lambda search: network.odds(network.pairs([search.query] * FOUND, search.texts)),
        "ONNX Runtime": by(uncached),
        "ONNX Runtime and cache": by(LanguageReader(*files)),
    }
    spent = dict.fromkeys(ways, 0.0)
    for way in list(ways.values())[:-1]:
        way(searches[0])
    for search in searches:  # each way in turn, so that whatever else the machine does meets all alike
        for name, way in ways.items():
            start = time.process_time()
            way(search)
            spent[name] += time.process_time() - start
    return spent


def run() -> Iterable[Result]:
    """Against PyTorch with fixed padding, over titles."""
    spent = steps(titles=True, tokens=PADDED)
    peer = spent["PyTorch, fixed padding"]
    yield Result("language model online, nothing cached", spent["ONNX Runtime"], peer, 4, "s, fixed padding", False)
    yield Result("language model online", spent["ONNX Runtime and cache"], peer, 10, "s, fixed padding", False)


def main() -> None:
    """The steps, for short and long texts."""
    for titles, tokens in ((True, PADDED), (True, 64), (False, PADDED), (False, 64)):
        spent = steps(titles=titles, tokens=tokens)
        peer = next(iter(spent.values()))
        print(f"{'titles' if titles else 'whole texts'}, at most {tokens} tokens", flush=True)
        for name, value in spent.items():
            print(f"  {name:24} {value:7.2f} s  {value / peer:.3f}", flush=True)


if __name__ == "__main__":
    main()
