"""Reductions: closed forms and real cases."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from rollwright.errors import ConfigError
from rollwright.method import Method
from rollwright.stages.reduce import Reduce
from rollwright.stages.reduce.constant_length import ConstantLength
from rollwright.stages.reduce.sequence_mean import SequenceMean
from rollwright.stages.reduce.token_mean import TokenMean
from rollwright.testing.hand import plain_method

ALL = [TokenMean(), SequenceMean(), ConstantLength(4)]


def weights(reduce: Reduce, masks: list[list[int]]) -> list[list[float]]:
    """Return the weights, one list for each trajectory."""
    sizes = [len(mask) for mask in masks]
    flat = np.array([m for mask in masks for m in mask], dtype=np.bool_)
    weight_T = reduce(flat, np.repeat(np.arange(len(masks)), sizes))
    return [part.tolist() for part in np.split(weight_T, np.cumsum(sizes)[:-1])]


def test_closed_forms():
    """Oracle: by hand. Mutants: count masked steps, or rows without trained steps, in a denominator."""
    masks = [[1, 1, 0, 1], [0, 1], [0, 0], []]
    assert weights(TokenMean(), masks) == [[1 / 4, 1 / 4, 0, 1 / 4], [0, 1 / 4], [0, 0], []]
    assert weights(SequenceMean(), masks) == [[1 / 6, 1 / 6, 0, 1 / 6], [0, 1 / 2], [0, 0], []]
    assert weights(ConstantLength(4), masks) == [[1 / 8, 1 / 8, 0, 1 / 8], [0, 1 / 8], [0, 0], []]


def test_case_a08_token_mean_over_the_whole_step():
    """Case A08. Oracle: 10/100. Mutant: mean of the micro-batches' means gives 0.5."""
    loss_T = np.concatenate([np.ones(10), np.zeros(90)])
    weight_T = TokenMean()(np.ones(100, np.bool_), np.repeat([0, 1], [10, 90]))
    by_micro_batch = [(loss_T[cut] * weight_T[cut]).sum() for cut in (slice(0, 10), slice(10, 100))]
    assert sum(by_micro_batch) == pytest.approx(0.1)


def test_case_m01_one_mask_for_numerator_and_divisor():
    """Case M01. Oracle: 25/25 = 1, and 0 without NaN when all is cut. Mutant: divide by 30."""
    got = weights(TokenMean(), [[1] * 25, [0] * 5])
    assert sum(map(sum, got)) == pytest.approx(1.0)
    for reduce in ALL:
        assert sum(map(sum, weights(reduce, [[0] * 25, [0] * 5]))) == 0.0
        assert reduce(np.zeros(0, np.bool_), np.zeros(0, np.int64)).tolist() == []


def test_case_e03_empty_completion():
    """Case E03. Oracle: masks [[0,0,0],[1,1,1]]: the empty row neither crashes nor divides."""
    assert weights(SequenceMean(), [[], [1, 1, 1]]) == [[], [1 / 3] * 3]
    assert weights(SequenceMean(), [[0, 0, 0], [1, 1, 1]]) == [[0, 0, 0], [1 / 3] * 3]


@pytest.mark.parametrize("reduce", ALL, ids=str)
def test_round_trips(reduce):
    """Law 9. Oracle: equality after pickle and JSON."""
    assert pickle.loads(pickle.dumps(reduce)) == reduce
    assert isinstance(reduce, Reduce)
    method = plain_method(reduce=reduce)
    assert Method.from_json(method.to_json()) == method


def test_bad_length():
    with pytest.raises(ConfigError, match="length=0 was given"):
        ConstantLength(0)
