"""The order of tasks: every one once per epoch, from the seed and the epoch alone."""

from dataclasses import dataclass

import numpy as np
import pytest

from rollwright.stages.select.shuffled import Shuffled


@dataclass
class Past:
    tasks: tuple[str, ...]
    seed: int
    num_picked: int = 0


def picks(num_tasks, num_picks, each, seed=1, start=0):
    past = Past(tuple(f"t/{i}" for i in range(num_tasks)), seed, start)
    found = []
    for step in range(num_picks):
        found += Shuffled().pick(past, each, np.random.default_rng(step))
        past.num_picked += each
    return found


@pytest.mark.parametrize("each", [1, 3, 4, 7, 12])
def test_every_task_once_per_epoch(each):
    """Counting: whatever the batch size, each stretch of ten picks is a permutation of the ten tasks."""
    found = picks(10, 120 // each, each)
    for epoch in range(len(found) // 10):
        assert sorted(found[10 * epoch : 10 * epoch + 10]) == sorted(f"t/{i}" for i in range(10))


def test_the_batch_size_does_not_change_the_order():
    """Metamorphic: picked one by one or by fours, the sequence is the same."""
    assert picks(10, 40, 1) == picks(10, 10, 4)


def test_the_position_is_all_that_a_resumed_run_needs():
    """From the count alone the sequence goes on where it was, with any generator."""
    assert picks(10, 10, 4)[16:] == picks(10, 6, 4, start=16)


def test_order_depends_on_seed_and_epoch():
    """Two seeds, and two epochs of one seed, have different orders."""
    first = picks(10, 2, 10, seed=1)
    assert first[:10] != first[10:]
    assert first[:10] != picks(10, 1, 10, seed=2)
