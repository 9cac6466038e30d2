"""What every label model inherits."""

from __future__ import annotations

import pytest

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.errors import DataError
from pyro_chmm.label_models.majority_vote import MajorityVote


def test_predictions_are_lists_of_names_one_a_document(tiny: Corpus) -> None:
    assert MajorityVote().fit(tiny).predict(tiny) == [
        ["B-PER", "I-PER", "O"],
        [],
        ["O", "B-PER", "O"],
    ]


def test_scores_need_gold_labels(tiny: Corpus) -> None:
    assert MajorityVote().score(tiny).f1 == 50.0
    with pytest.raises(DataError, match="no gold labels"):
        MajorityVote().score(tiny.without_gold())
