"""The figures of repair stand on these: the bound, the rules beside it, and that a measurement repeats."""

import itertools
import random
import statistics

import pytest

from benches.repair.bound import Loss, bound, ideal_selective_repeat, selective_repeat
from benches.repair.channels import Case, measure


def test_one_receiver_needs_k_segments_that_come() -> None:
    for data_count, share in ((1, 0.3), (16, 0.05), (128, 0.2)):
        assert bound(data_count, 1, Loss(share)) == pytest.approx(data_count / (1 - share))
        assert ideal_selective_repeat(data_count, 1, Loss(share)) == pytest.approx(data_count / (1 - share))


def test_one_segment_is_repeated_until_the_last_receiver_has_it() -> None:
    # By inclusion and exclusion: 2 / (1 - p) - 1 / (1 - p^2).
    expected = 2 / 0.7 - 1 / (1 - 0.3**2)
    assert bound(1, 2, Loss(0.3)) == pytest.approx(expected)
    assert ideal_selective_repeat(1, 2, Loss(0.3)) == pytest.approx(expected)


@pytest.mark.parametrize("loss", [Loss(0.2), Loss(0.2, 8)], ids=str)
def test_the_bound_is_what_draws_give(loss: Loss) -> None:
    rng = random.Random(1)

    def draw() -> int:
        worst = 0
        for _ in range(5):
            lost, came, sent = None, 0, 0
            while came < 16:
                lost = loss.draw(lost, rng)
                sent, came = sent + 1, came + (not lost)
            worst = max(worst, sent)
        return worst

    draws = [draw() for _ in range(4_000)]
    error = statistics.stdev(draws) / len(draws) ** 0.5
    assert bound(16, 5, loss) == pytest.approx(statistics.fmean(draws), abs=4 * error)


def test_drawn_rounds_of_the_ideal_are_what_is_computed_and_lost_acknowledgements_cost_more() -> None:
    loss = Loss(0.2)
    ideal, peers = (
        statistics.fmean(
            selective_repeat(16, 5, loss, random.Random(seed), acknowledgements_lost=lost).segments
            for seed in range(1_000)
        )
        for lost in (False, True)
    )
    assert ideal == pytest.approx(ideal_selective_repeat(16, 5, loss), rel=0.02)
    assert peers > 1.1 * ideal


def test_bursts_are_as_long_and_as_frequent_as_said() -> None:
    loss, rng = Loss(0.1, 8), random.Random(1)
    lost: list[bool] = [False]
    for _ in range(200_000):
        lost.append(loss.draw(lost[-1], rng))
    begun = sum(now and not before for before, now in itertools.pairwise(lost))
    assert sum(lost) / len(lost) == pytest.approx(0.1, rel=0.05)
    assert sum(lost) / begun == pytest.approx(8, rel=0.05)


def test_a_measurement_repeats_and_counts_what_left() -> None:
    case = Case("arq-0", 12, 2, Loss(0.0), 256)
    cost = measure(case, 1)
    assert cost == measure(case, 1)
    assert (cost.segments, cost.rounds, cost.delivered) == (12, 1, True)
    lossy = measure(Case("arq-0", 12, 2, Loss(0.3), 256), 1)
    assert lossy.segments > 12
    assert lossy.rounds > 1


@pytest.mark.parametrize(("loss", "seed"), [(0.2, 6), (0.3, 4)])
def test_who_did_not_hear_the_sender_ask_says_no_filter_either(loss: float, seed: int) -> None:
    """One filter is as large as the message."""
    cost = measure(Case("parity", 16, 20, Loss(loss)), seed)
    assert cost.delivered
    assert cost.control_bytes < 0.15 * cost.bytes


@pytest.mark.parametrize("loss", [Loss(0.3), Loss(0.2, 8)], ids=str)
def test_a_message_of_sixteen_small_segments_takes_little_control(loss: Loss) -> None:
    """To 20 receivers; a filter is as large as the message."""
    costs = [measure(Case("parity", 16, 20, loss), seed) for seed in range(30)]
    assert all(cost.delivered for cost in costs)
    assert sum(cost.control_bytes for cost in costs) < 0.15 * sum(cost.bytes for cost in costs)


@pytest.mark.parametrize(("data_count", "loss", "share"), [(16, 0.05, 0.04), (16, 0.2, 0.1), (64, 0.05, 0.04)])
def test_a_lost_acknowledgement_makes_little_go_that_nobody_lacks(data_count: int, loss: float, share: float) -> None:
    """Where much is lost, answers to who asks before the sender repeats it are lost too."""
    costs = [measure(Case("arq-0", data_count, 5, Loss(loss)), seed) for seed in range(10)]
    assert sum(cost.needless for cost in costs) < share * sum(cost.segments for cost in costs)
