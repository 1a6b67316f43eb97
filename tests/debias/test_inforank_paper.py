"""The preset inforank_paper against the printed equations: by hand, by finite differences, and as `fit` trains it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from clickprism.debias.inforank_paper import InfoRankPaper, InfoRankPaperLearner
from clickprism.debias.loop import batches
from clickprism.errors import SettingError
from clickprism.rankers.attention import Attention, AttentionNetwork, BatchNorm
from clickprism.rankers.mlp import MLP
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Batch, Clicks, Lists

SMALL = Attention(width=4, units=2, hidden=(3,), heads=2)
FIT = FitSettings(epochs=2, batch_size=16, threads=1, seed=1)


def sigmoid(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))


def elu(value: float) -> float:
    return value if value > 0 else math.expm1(value)


def learner_of(clicks: Clicks, ranker: Any = SMALL, **settings: Any) -> InfoRankPaperLearner:
    method = InfoRankPaper(**settings)
    torch.manual_seed(0)
    return method.learner(method.published_ranker(ranker).build(clicks.lists.features.shape[1]), clicks)


def two_documents() -> Clicks:
    """One list of two documents with one feature; of four sessions three click the first and one the second."""
    lists = Lists(np.array([[0.5], [-1.0]], np.float32), np.array([0, 2]), np.array(["q"]))
    places = np.array([1, 2], np.int32)
    return Clicks(lists, np.array([0, 2]), np.array([0, 1]), places, np.array([3, 1]), np.array([4]))


# Every weight of a network of width 1: two heads, one feature, one hidden unit on p.
SLOPE, BIAS, MIX, OWN = 0.8, 0.1, 1.2, -0.2  # token of a number: MIX elu(SLOPE x + BIAS) + OWN
W_T, W_S, W_C = (0.9, -0.6), (1.1, 0.7), (1.5, -0.4)  # of the two heads
W_Q, B_Q, W_P, B_P, W = 1.3, -0.3, 2.0, -0.9, 1.7
POSITIONS, UNOBSERVED, OBSERVED = (0.6, -0.5), -1.1, 0.9
RELEVANCE, OBSERVATION = (2.0, 0.3, 1.4, -0.8), (-1.6, 0.5, 2.2, -1.6)  # hidden weight, bias, last weight, bias
IOTA = 2.0


def attention_by_hand(tokens: list[float]) -> float:
    """Return p of Eqs. 8 to 11."""
    said = []
    for x_i in tokens:
        heads = []
        for w_t, w_s, w_c in zip(W_T, W_S, W_C, strict=True):
            beta = [(x_i * w_t) * (x_j * w_s) for x_j in tokens]  # Eq. 8
            total = sum(math.exp(each / IOTA) for each in beta)
            alpha = [math.exp(each / IOTA) / total for each in beta]  # Eq. 9
            heads.append(sum(a * (x_j * w_c) for a, x_j in zip(alpha, tokens, strict=True)))
        omega = sigmoid(W_Q * (sum(heads) / len(heads)) + B_Q)  # Eq. 10
        said.append(W * math.tanh(W_P * omega + B_P))
    return sum(said) / len(tokens)  # Eq. 11


def head_by_hand(p: float, weights: tuple[float, float, float, float]) -> float:
    """Return a probability; the moving averages of batch normalisation are 0 and 1."""
    one, bias, two, last = weights
    return sigmoid(two * elu(one * p + bias) + last)


def by_hand(x: float, position: int) -> tuple[float, float, float]:
    """Return P(R | O = 1, x), P(R | O = 0, x) and P(O | x)."""
    feature, place = MIX * elu(SLOPE * x + BIAS) + OWN, POSITIONS[position - 1]
    seen, unseen = (head_by_hand(attention_by_hand([feature, place, o]), RELEVANCE) for o in (OBSERVED, UNOBSERVED))
    return seen, unseen, head_by_hand(attention_by_hand([feature, place]), OBSERVATION)


def hand_learner(**settings: Any) -> InfoRankPaperLearner:
    """Return the learner with the weights above, in double precision, scoring as after training."""
    ranker = Attention(form="paper", width=1, units=1, heads=2, hidden=(1,), temperature=IOTA)
    learner = learner_of(two_documents(), ranker, **settings).double()
    network = learner.ranker
    assert isinstance(network, AttentionNetwork)
    body = network.body
    values: dict[str, Any] = {
        "tokens.slope": SLOPE,
        "tokens.bias": BIAS,
        "tokens.mix": MIX,
        "tokens.own": OWN,
        "project.weight": [[each] for each in (*W_T, *W_S, *W_C)],
        "combine.weight": W_Q,
        "combine.bias": B_Q,
        "pool.weight": W_P,
        "pool.bias": B_P,
        "weigh.weight": W,
        "context": [[POSITIONS[0]], [OBSERVED]],
    }
    with torch.no_grad():
        for name, value in values.items():
            parameter = body.get_parameter(name)
            parameter.copy_(torch.tensor(value, dtype=torch.float64).expand(parameter.shape))
        learner.inputs.positions.fill_(POSITIONS[1])
        learner.inputs.other.fill_(UNOBSERVED)
        for head, weights in ((network.layers, RELEVANCE), (learner.inputs.tower, OBSERVATION)):
            linear = [layer for layer in head if isinstance(layer, torch.nn.Linear)]
            for layer, (weight, bias) in zip(linear, (weights[:2], weights[2:]), strict=True):
                layer.weight.fill_(weight)
                layer.bias.fill_(bias)
            for norm in head:
                if isinstance(norm, BatchNorm):
                    norm.variance.fill_(1 - 1e-5)  # torch adds 1e-5
    return learner.eval()


def double(batch: Batch) -> Batch:
    return replace(
        batch, features=batch.features.double(), clicks=batch.clicks.double(), impressions=batch.impressions.double()
    )


def test_probabilities_by_hand() -> None:
    """Eqs. 8 to 11 and the two networks on p, with a token of o for relevance and none for observation."""
    learner = hand_learner()
    documents, positions = torch.tensor([[0.5], [-1.0]], dtype=torch.float64), torch.tensor([1, 2])
    with torch.no_grad():
        odds = learner.conditional(documents, positions)
        served = torch.sigmoid(learner.ranker(documents))
    for place, (x, position) in enumerate(((0.5, 1), (-1.0, 2))):
        expected = by_hand(x, position)
        assert [torch.sigmoid(each[place]).item() for each in odds] == pytest.approx(expected, rel=1e-12)
        assert served[place].item() == pytest.approx(by_hand(x, 1)[1], rel=1e-12)  # P(O | x) is .22, .52: o is 0
    assert odds.observed[0] < 0 < odds.observed[1]  # o is estimated as 0 for one document, as 1 for the other


def test_the_loss_by_hand() -> None:
    """Eqs. 12 and 16 with the estimated o, Eqs. 13 to 15, and half of the squared weights over the batch."""
    learner = hand_learner(eta=0.5, l2=0.01, batch=128)
    clicks, information = 0.0, 0.0
    for x, position, rate in ((0.5, 1, 3 / 4), (-1.0, 2, 1 / 4)):
        seen, unseen, known = by_hand(x, position)
        chance = (seen if known > 0.5 else unseen) * known  # Eq. 12
        clicks -= rate * math.log(chance) + (1 - rate) * math.log(1 - chance)  # Eq. 16, a session
        p_relevant = seen * known + unseen * (1 - known)  # Eq. 15
        for r, o in product((1, 0), (1, 0)):  # Eq. 14
            given, observed = (seen, known) if o else (unseen, 1 - known)
            conditional, marginal = (given, p_relevant) if r else (1 - given, 1 - p_relevant)
            information += conditional * observed * math.log(conditional / marginal)
    parts = learner.loss(double(next(batches(two_documents(), 1))))
    assert parts["clicks"].item() == pytest.approx(clicks / 2, rel=1e-7)
    assert parts["information"].item() == pytest.approx(0.5 * information / 2, rel=1e-5)
    matrices = [SLOPE, MIX, OWN, BIAS, *W_T, *W_S, *W_C, W_Q, W_P, W, *POSITIONS, OBSERVED, UNOBSERVED]
    matrices += [RELEVANCE[0], RELEVANCE[2], OBSERVATION[0], OBSERVATION[2]]
    assert parts["weights"].item() == pytest.approx(0.01 / 2 / 128 * sum(each**2 for each in matrices), rel=1e-12)


def test_one_hot_position_and_o_are_inputs_of_the_first_layer(clicks: Clicks) -> None:
    """A DNN on [x, one-hot position, o]: the weights of position 1 and of o = 1 are in the bias."""
    learner = learner_of(clicks, MLP(hidden=(3,), activation="relu", layer_norm="none")).double()
    x, position = torch.tensor([[0.3, -0.2, 0.5, 1.0, -0.7]], dtype=torch.float64), 3
    odds = learner.conditional(x, torch.tensor([position]))
    state = {name: value.numpy() for name, value in learner.state_dict().items()}
    first, bias = state["ranker.layers.0.weight"], state["ranker.layers.0.bias"]
    last, end = state["ranker.layers.2.weight"], state["ranker.layers.2.bias"]
    place = state["inputs.positions"][position - 2]
    for o, found in ((1, odds.seen), (0, odds.unseen)):
        hidden = np.maximum(first @ x[0].numpy() + bias + place + (1 - o) * state["inputs.other"][0], 0)
        assert found.item() == pytest.approx((last @ hidden + end).item(), rel=1e-12)
    tower = [state[f"inputs.tower.{layer}.{kind}"] for layer in (0, 2) for kind in ("weight", "bias")]
    hidden = np.maximum(tower[0] @ x[0].numpy() + tower[1] + state["inputs.tower_positions"][position - 2], 0)
    assert odds.observed.item() == pytest.approx((tower[2] @ hidden + tower[3]).item(), rel=1e-12)


def test_gradients_of_the_attention_by_finite_differences(clicks: Clicks) -> None:
    """In training, through batch normalisation; the estimated o has no gradient."""
    learner = learner_of(clicks).double()
    batch = double(next(batches(clicks, 8)))
    parameters = list(learner.parameters())

    def total() -> torch.Tensor:
        return torch.stack(list(learner.loss(batch).values())).sum()

    gradients = torch.autograd.grad(total(), parameters)
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        directions = [torch.randn(each.shape, generator=generator, dtype=each.dtype) for each in parameters]
        slope = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                for each, direction in zip(parameters, directions, strict=True):
                    each.add_(step * direction)
                values.append(float(total()))
                for each, direction in zip(parameters, directions, strict=True):
                    each.sub_(step * direction)
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-4)


def test_the_two_networks_on_p_share_no_parameters(clicks: Clicks) -> None:
    learner = learner_of(clicks)
    network = learner.ranker
    assert isinstance(network, AttentionNetwork)
    heads = [{id(each) for each in head.parameters()} for head in (network.layers, learner.inputs.tower)]
    assert len(heads[0]) == len(heads[1]) > 0
    assert not heads[0] & heads[1]


def test_batch_normalisation_has_the_decay_of_the_paper() -> None:
    norm = BatchNorm(2)
    values = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    assert norm(values)[:, 0].tolist() == pytest.approx([-1, 1], abs=1e-4)
    assert norm.mean.tolist() == pytest.approx([0.9 * 0 + 0.1 * 2, 0])
    assert norm.variance.tolist() == pytest.approx([0.9 * 1 + 0.1 * 2, 0.9])  # torch keeps the unbiased variance
    before = norm.mean.clone()
    one = norm(values[:1])  # one document has no variance: the moving averages
    assert one[0, 0].item() == pytest.approx((1 - 0.2) / math.sqrt(1.1 + 1e-5), rel=1e-6)
    assert torch.equal(norm.mean, before)


def test_fit_trains_as_the_appendix_says(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam, .001, 128 documents in lists of 6.6, no clipping; and the attention of Eqs. 10 and 11."""
    used: list[FitSettings] = []
    from clickprism.training import network

    train = network.train

    def watched(*given: Any, **named: Any) -> Any:
        used.append(named["settings"])
        return train(*given, **named)

    monkeypatch.setattr(network, "train", watched)
    ranker = fit(clicks, method=InfoRankPaper(), ranker=SMALL, settings=FIT).model.ranker
    assert ranker == replace(SMALL, form="paper", context=2, norm="batch")
    (found,) = used
    assert (found.optimiser, found.learning_rate, found.clip_norm, found.weight_decay) == ("adam", 0.001, 0.0, 0.0)
    assert found.batch_size == round(128 / (len(clicks.rows) / len(clicks)))
    assert (found.epochs, found.seed) == (FIT.epochs, FIT.seed)


@pytest.mark.parametrize("ranker", [SMALL, MLP(hidden=(4,))], ids=["attention", "mlp"])
@pytest.mark.parametrize("bias", [3.0, -3.0], ids=["observed", "unobserved"])
def test_what_is_served_is_relevance_at_the_first_position(clicks: Clicks, ranker: Any, bias: float) -> None:
    """With the o that most documents are estimated to have there; the probabilities do not change with it."""
    learner = learner_of(clicks, ranker)
    documents = torch.from_numpy(clicks.lists.features[:50].copy())
    with torch.no_grad():
        for norm in learner.modules():
            norm.training = False  # without a choice of o
        learner.inputs.tower[-1].bias.fill_(bias)  # type: ignore[operator]
        before = learner.conditional(documents, torch.full((50,), 5))
        learner.eval()
        first, below = (learner.conditional(documents, torch.full((50,), place)) for place in (1, 5))
        served = learner.ranker(documents)
        logs = learner.log_observation(documents)[:, 4]
    torch.testing.assert_close(first.seen if bias > 0 else first.unseen, served)
    torch.testing.assert_close(tuple(below), tuple(before))
    assert not torch.allclose(first.seen, first.unseen)
    assert not torch.equal(first.seen, below.seen)
    torch.testing.assert_close(logs, torch.nn.functional.logsigmoid(below.observed))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"eta": -1.0}, "eta must be at least 0"),
        ({"l2": float("nan")}, "l2 must be at least 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"batch": 0}, "batch must be at least 1"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        InfoRankPaper(**wrong)


def test_an_attention_without_the_tokens_of_the_paper_is_refused(clicks: Clicks) -> None:
    with pytest.raises(SettingError, match=r"ranker\.context must be 2 for inforank_paper, got 0"):
        InfoRankPaper().learner(SMALL.build(5), clicks)
    with pytest.raises(SettingError, match="ranker must be linear, mlp or attention for inforank_paper"):
        InfoRankPaper().learner(torch.nn.Linear(5, 1), clicks)
    with pytest.raises(SettingError, match="context must be 0, or above it in the form paper"):
        Attention(context=2)
