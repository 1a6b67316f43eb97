"""A choice in words: a table that fits a terminal, refusals as sentences, leads without noise."""

from __future__ import annotations

from clickprism.choice.criterion import Gain
from clickprism.choice.words import by_moved, legend, of_ranker, rows, text, unsupported


def test_what_was_tried_fits_a_terminal() -> None:
    refused = {"click": "", "pooled": "", "bend": "too few queries were clicked. Log more searches"}
    made = rows(refused, {"pooled": Gain(25_579.1, 1_090.2)}, {}, {"pooled/mlp": Gain(0.9274, 0.0011)})
    assert [row[0] for row in made] == ["pooled", "bend", "pooled/mlp"]
    said = text("pooled/mlp", ["A reason, " + "and " * 60], made)
    assert max(map(len, said.splitlines())) <= 110
    assert "bend is refused: too few queries were clicked. Log more searches." in said
    assert "25,579.1" in said
    assert [line.partition(":")[0] for line in legend(made)] == ["pooled", "bend"]
    assert "what was tried" not in text("click/linear", ["A reason."], [])


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
