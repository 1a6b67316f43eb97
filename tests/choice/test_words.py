"""A choice in words: a table of what was tried, leads without noise."""

from __future__ import annotations

from clickprism.choice.criterion import Gain
from clickprism.choice.words import by_moved, legend, of_ranker, rows, unsupported


def test_the_table_has_a_row_for_each_trial_and_refusal() -> None:
    refused = {"click": "", "pooled": "", "bend": "too few queries were clicked. Log more searches"}
    made = rows(refused, {"pooled": Gain(25_579.1, 1_090.2)}, {}, {"pooled/mlp": Gain(0.9274, 0.0011)})
    assert [row[0] for row in made] == ["pooled", "bend", "pooled/mlp"]
    assert made[0][2:] == ["25,579.1", "1,090.2"]
    assert made[1][1:3] == ["refused", "too few queries were clicked. Log more searches"]
    assert [line.partition(":")[0] for line in legend(made)] == ["pooled", "bend"]


def test_a_lead_is_said_as_far_as_it_goes() -> None:
    values = {"mlp": 0.9274, "linear": 0.93}
    said = of_ranker("mlp", "linear", values, {"mlp": Gain(0.0026, 0.0011)})
    assert "linear is ahead by 0.0026 ± 0.0011, too little" in said
    assert "less than 0.0001" in of_ranker("mlp", "linear", values, {"mlp": Gain(0.00005, 0.00004)})
    assert "the best of 2 rankers" in of_ranker("linear", "linear", values, {})


def test_models_that_were_asked_for_and_not_taken_are_told_of() -> None:
    assert unsupported(("position", "pooled"), ("click", "pooled"), linked=False) == (
        "Not tried: position. It would take documents that stood at several positions to link all of them, which the "
        "log does not tell.",
    )
    assert "what was clicked together" in unsupported(("browsing",), ("click",), linked=True)[0]
    assert unsupported(("pooled",), ("click", "pooled"), linked=True) == ()
    assert "(the best of them by -51.2 ± 8.1)" in by_moved("click", Gain(-51.2, 8.1), linked=False)[0]
    assert "too few clicks" in by_moved("click", None, linked=False)[0]
