"""What was lost while participants were killed and started again is made good soon."""

from __future__ import annotations

import os

from tests.simulation.lossy_restarts import run_many

WORLDS = 12
# Half of what idle syncs are apart with three participants.
SETTLED_S_MAX = 25


def test_what_was_lost_between_restarts_is_made_good_soon() -> None:
    outcomes = list(run_many(range(WORLDS), os.cpu_count() or 1))
    assert sum(outcome.kills for outcome in outcomes) > 5 * WORLDS
    assert {outcome.seed: outcome.missing for outcome in outcomes if outcome.missing} == {}
    late = {outcome.seed: outcome.settled_s for outcome in outcomes if outcome.settled_s > SETTLED_S_MAX}
    assert late == {}
