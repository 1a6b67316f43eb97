"""A word to those who give codes of names to a ranker that takes them for numbers."""

from __future__ import annotations

import logging

from clickprism.data.vocabulary import Vocabulary
from clickprism.experiments.settings import ExperimentSettings

log = logging.getLogger(__name__)


def warn_of_codes(settings: ExperimentSettings, vocabulary: Vocabulary | None) -> None:
    """Warn where a ranker that embeds no names is given their codes; settings are those of `told_names`."""
    if vocabulary is not None and vocabulary.places and not settings.ranker.get("categorical"):
        log.warning(
            "%s takes the codes of names (%s) for numbers, which mean nothing: --set data.names=indicators makes a "
            "feature of each name, and --ranker attention embeds them",
            settings.ranker["name"],
            ", ".join(vocabulary.places),
        )
