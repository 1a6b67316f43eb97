"""Rankers that learn from evidence: linear ones, averages of small networks, and trees.

Each learns two functions of the features (`clickprism.auto.evidence`): w, by the likelihood of clicks within a query
given their exposure, and e, by the squared error of the engine's score within a query. A linear ranker plus networks is
one network, so the sum w + weight e is served, exported and explained as any network is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np

from clickprism.auto.evidence import centred
from clickprism.types import Float32, Float64, Int64

if TYPE_CHECKING:
    import torch

    from clickprism.model import Model
    from clickprism.rankers.lambdamart import Trees

HIDDEN: Final = (32, 16)
ENGINE_HIDDEN: Final = (64, 32)  # the engine's order is known without noise: larger networks pay
RATE: Final = 0.005
DECAY: Final = 0.001
EPOCHS: Final = 200  # of one step each; fewer if an epoch has several steps
PATIENCE: Final = 25
BATCH: Final = 16_384  # pairs
HELD_OUT: Final = 0.15  # of the queries, whose loss says when a network has learned enough
TREES: Final = {"trees": 120, "learning_rate": 0.06, "leaves": 12, "min_data_in_leaf": 20, "l2": 5.0}
GROUP: Final = 1000  # rows of a group of trees
MOST_STEPS: Final = 30

Network: TypeAlias = tuple[Float32, Float32, Float32, Float32, Float32, Float32]  # weights and biases of three layers


@final
@dataclass(frozen=True, eq=False)
class Scorer:
    """A weighted sum of a linear function and of small networks.

    Attributes:
        linear: Coefficients, [columns].
        networks: Weight and layers of each network.
    """

    linear: Float64
    networks: tuple[tuple[float, Network], ...] = field(default=())

    def __call__(self, features: Float64 | Float32) -> Float64:
        """Return the scores of documents, [documents]."""
        scores = features @ self.linear
        for weight, (first, bias, second, bias_2, last, bias_3) in self.networks:
            hidden = np.maximum(features @ first.T + bias, 0.0)
            hidden = np.maximum(hidden @ second.T + bias_2, 0.0)
            scores = scores + weight * (hidden @ last[0] + bias_3[0])
        return np.asarray(scores, dtype=np.float64)

    def plus(self, other: Scorer, weight: float = 1.0) -> Scorer:
        """Return this function plus `weight` times another."""
        parts = {id(network): (share, network) for share, network in self.networks}
        for share, network in other.networks:  # a network that is in both is evaluated once
            before = parts.get(id(network), (0.0, network))[0]
            parts[id(network)] = before + weight * share, network
        return Scorer(self.linear + weight * other.linear, tuple(parts.values()))

    def times(self, factor: float) -> Scorer:
        """Return a multiple of this function."""
        return Scorer(factor * self.linear, tuple((factor * share, network) for share, network in self.networks))

    def model(self, method: str = "log_model") -> Model:
        """Return the function as a ranker: linear, or one network whose weights between members are 0.

        Args:
            method: What trained it, for the model card: "log_model", "click" or "imitation".
        """
        import torch

        from clickprism.model import Model
        from clickprism.rankers.linear import Linear, LinearNetwork
        from clickprism.rankers.mlp import MLP

        columns, about = len(self.linear), {"name": method}
        if not self.networks:
            network = LinearNetwork(columns)
            with torch.no_grad():
                network.output.weight.copy_(torch.from_numpy(self.linear[None].astype(np.float32)))
            return Model(Linear(), network.eval(), features=columns, method=about)
        # a linear function is max(w.x, 0) - max(-w.x, 0): two units of each layer
        own = self.linear[None].astype(np.float32)
        nothing = np.zeros(2, dtype=np.float32)
        two: Network = (
            np.concatenate([own, -own]), nothing, np.eye(2, dtype=np.float32), nothing,
            np.array([[1.0, -1.0]], dtype=np.float32), np.zeros(1, dtype=np.float32),
        )  # fmt: skip
        parts = [(1.0, two), *self.networks]
        ranker = MLP(
            hidden=(sum(len(part[1]) for _, part in parts), sum(len(part[3]) for _, part in parts)),
            activation="relu",
            layer_norm="none",
        )
        made = ranker.build(columns)
        arrays = (
            np.concatenate([part[0] for _, part in parts]),
            np.concatenate([part[1] for _, part in parts]),
            _diagonal([part[2] for _, part in parts]),
            np.concatenate([part[3] for _, part in parts]),
            np.concatenate([weight * part[4] for weight, part in parts], axis=1),
            np.sum([weight * part[5] for weight, part in parts], axis=0),
        )
        state = {
            name: torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
            for name, values in zip(made.state_dict(), arrays, strict=True)
        }
        made.load_state_dict(state)
        return Model(ranker, made.eval(), features=columns, method=about)


def average(scorers: Sequence[Scorer]) -> Scorer:
    """Return the mean of several functions."""
    total = scorers[0]
    for each in scorers[1:]:
        total = total.plus(each)
    return total.times(1 / len(scorers))


def linear_clicks(
    features: Float64, clicks: Float64, offset: Float64, query: Int64, *, ridge: Float64, start: Float64 | None = None
) -> Float64:
    """Return the coefficients of the most likely linear function of the features, by Newton's method.

    It maximises sum of c_d log softmax_d(x b + offset) over each query, minus ridge b^2 / 2.

    Args:
        features: [pairs, columns].
        clicks: [pairs].
        offset: Fixed part of the log click rate, such as the log of the exposure, [pairs].
        query: Query of each pair, not decreasing, [pairs].
        ridge: Penalty of each coefficient, [columns].
        start: Coefficients to start from.
    """
    query = np.unique(query, return_inverse=True)[1]
    size = int(query.max(initial=-1)) + 1
    starts = np.searchsorted(query, np.arange(size))
    total = np.bincount(query, weights=clicks, minlength=size)
    found = np.zeros(features.shape[1]) if start is None else start.copy()

    def shares(coefficients: Float64) -> tuple[Float64, float]:
        logits = features @ coefficients + offset
        top = np.maximum.reduceat(logits, starts)[query]
        each = np.exp(logits - top)
        norm = np.add.reduceat(each, starts)[query]
        likely = float(clicks @ (logits - top - np.log(norm))) - 0.5 * float(ridge @ coefficients**2)
        return each / norm, likely

    share, value = shares(found)
    for _ in range(MOST_STEPS):
        weight = total[query] * share
        mean = np.add.reduceat(features * share[:, None], starts, axis=0)
        hessian = (features * weight[:, None]).T @ features - (mean * total[:, None]).T @ mean + np.diag(ridge)
        step = np.linalg.solve(hessian, features.T @ (clicks - weight) - ridge * found)
        length = 1.0
        while length > 1e-4:
            ahead, likely = shares(found + length * step)
            if likely >= value - 1e-9 * abs(value):
                break
            length /= 2
        else:
            break
        found, share, value = found + length * step, ahead, likely
        if np.abs(length * step).max(initial=0.0) < 1e-6:
            break
    return found


def linear_engine(features: Float64, values: Float64, query: Int64, *, ridge: float) -> Float64:
    """Return the coefficients of a ridge regression of values on features, both centred within queries."""
    own = centred(features, query)
    matrix = own.T @ own + ridge * np.eye(own.shape[1])
    return np.asarray(np.linalg.solve(matrix, own.T @ centred(values, query)))


def network_clicks(features: Float64, clicks: Float64, offset: Float64, query: Int64, *, seed: int) -> Network:
    """Return a small network trained by the likelihood of clicks within queries (as `linear_clicks`)."""
    import torch

    counts, fixed = torch.from_numpy(clicks.astype(np.float32)), torch.from_numpy(offset.astype(np.float32))

    def loss(scores: torch.Tensor, at: torch.Tensor, group: torch.Tensor, groups: int) -> torch.Tensor:
        logits, own = scores + fixed[at], counts[at]
        top = torch.full((groups,), -torch.inf).scatter_reduce(0, group, logits.detach(), "amax")[group]
        norm = torch.zeros(groups).index_add(0, group, torch.exp(logits - top))
        return -(own * (logits - top - torch.log(norm)[group])).sum() / own.sum().clamp(min=1e-6)

    return _train(features, query, loss, hidden=HIDDEN, seed=seed)


def network_engine(features: Float64, values: Float64, query: Int64, *, seed: int) -> Network:
    """Return a small network trained by the squared error of values, both centred within queries."""
    import torch

    target = torch.from_numpy(values.astype(np.float32))

    def loss(scores: torch.Tensor, at: torch.Tensor, group: torch.Tensor, groups: int) -> torch.Tensor:
        error = scores - target[at]
        size = torch.zeros(groups).index_add(0, group, torch.ones_like(error)).clamp(min=1.0)
        mean = torch.zeros(groups).index_add(0, group, error) / size
        return ((error - mean[group]) ** 2).mean()

    return _train(features, query, loss, hidden=ENGINE_HIDDEN, seed=seed)


def _train(
    features: Float64,
    query: Int64,
    loss: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor],
    *,
    hidden: tuple[int, ...],
    seed: int,
) -> Network:
    """Train a network of two hidden layers until the loss of held-out queries stops falling."""
    import torch

    rng = np.random.default_rng([seed, 53])
    query = np.unique(query, return_inverse=True)[1].astype(np.int64)
    size = int(query.max(initial=-1)) + 1
    starts = np.append(np.searchsorted(query, np.arange(size)), len(query))
    order = rng.permutation(size)
    few = max(1, round(HELD_OUT * size))
    held, kept = (order[:few], order[few:]) if size > 2 else (order, order)
    x = torch.from_numpy(features.astype(np.float32))
    generator = torch.Generator().manual_seed(seed)
    layers: list[torch.nn.Module] = []
    width = features.shape[1]
    for units in hidden:
        layers += [torch.nn.Linear(width, units), torch.nn.ReLU()]
        width = units
    network = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))
    for parameter in network.parameters():
        bound = 1 / np.sqrt(parameter.shape[-1] if parameter.ndim > 1 else parameter.shape[0])
        torch.nn.init.uniform_(parameter, -bound, bound, generator=generator)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)

    def part(queries: Int64) -> tuple[torch.Tensor, torch.Tensor, int]:
        own = np.sort(queries)
        rows = np.concatenate([np.arange(starts[each], starts[each + 1]) for each in own])
        group = np.repeat(np.arange(len(own)), np.diff(starts)[own])
        return torch.from_numpy(rows), torch.from_numpy(group), len(own)

    def value(given: tuple[torch.Tensor, torch.Tensor, int]) -> torch.Tensor:
        at, group, groups = given
        return loss(network(x[at]).squeeze(-1), at, group, groups)

    parts = max(1, round(len(query) / BATCH))
    validation, best, state, waited = part(held), float("inf"), network.state_dict(), 0
    batches = [part(kept)] if parts == 1 else []
    for _ in range(max(EPOCHS // parts, 10)):
        if parts > 1:
            batches = [part(each) for each in np.array_split(rng.permutation(kept), parts)]
        for batch in batches:
            optimiser.zero_grad()
            value(batch).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.no_grad():
            now = float(value(validation))
        if now < best - 1e-6:
            best, waited = now, 0
            state = {name: each.clone() for name, each in network.state_dict().items()}
        else:
            waited += 1
            if waited >= max(PATIENCE // parts, 3):
                break
    one, two, three, four, five, six = (each.numpy() for each in state.values())
    return one, two, three, four, five, six


@final
class _ClickLikelihood:
    """The negative log-likelihood of clicks within queries, by its derivatives at the scores of trees."""

    def __init__(self, clicks: Float64, offset: Float64, query: Int64) -> None:
        self.clicks, self.offset = clicks, offset
        self.query = np.unique(query, return_inverse=True)[1]
        self.starts = np.searchsorted(self.query, np.arange(int(self.query.max(initial=-1)) + 1))
        self.total = np.add.reduceat(clicks, self.starts)[self.query]

    def __call__(self, scores: Float64) -> tuple[Float64, Float64]:
        """Return the first and second derivative by each score, [pairs] each."""
        logits = scores + self.offset
        each = np.exp(logits - np.maximum.reduceat(logits, self.starts)[self.query])
        share = each / np.add.reduceat(each, self.starts)[self.query]
        return self.total * share - self.clicks, np.maximum(self.total * share * (1 - share), 1e-6)

    def observation(self) -> None:
        """Return None: the exposure is given."""
        return


def tree_clicks(features: Float64, clicks: Float64, offset: Float64, query: Int64, *, seed: int) -> Trees:
    """Return trees that are grown by the likelihood of clicks within queries (as `linear_clicks`)."""
    from clickprism.rankers.lambdamart import Boosting, LambdaMART

    rows = np.arange(len(query), dtype=np.int64)
    lengths = np.diff(np.append(np.arange(0, len(query), GROUP), len(query)))  # the objective knows the queries
    objective = _ClickLikelihood(clicks, offset, query)
    boosting = Boosting(features.astype(np.float32), rows, lengths, clicks, objective=objective)
    return LambdaMART(**TREES).train(boosting, seed=seed, threads=1)  # type: ignore[arg-type]


def tree_model(trees: Trees, columns: int, method: str = "log_model") -> Model:
    """Return trees as a ranker; `method` is what trained them, as in `Scorer.model`."""
    from clickprism.model import Model
    from clickprism.rankers.lambdamart import LambdaMART

    ranker: Any = LambdaMART(**TREES)  # type: ignore[arg-type]
    return Model(ranker, trees, features=columns, method={"name": method})


def _diagonal(blocks: Sequence[Float32]) -> Float32:
    """Return one matrix with these blocks along its diagonal, and 0 elsewhere."""
    made = np.zeros((sum(len(each) for each in blocks), sum(each.shape[1] for each in blocks)), dtype=np.float32)
    row = column = 0
    for each in blocks:
        made[row : row + len(each), column : column + each.shape[1]] = each
        row, column = row + len(each), column + each.shape[1]
    return made
