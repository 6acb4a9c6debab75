"""Two participants in two processes through real servers; all scenarios that were asked for run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from interop.live.networks import LiveNetwork, MqttNetwork, NatsNetwork, UdpNetwork
from interop.live.scenarios import LARGE_BYTES, SCENARIOS, World
from interop.live.waku_networks import LightWakuNetwork, WakuNetwork

# Processes of so many scenarios compete for the processor at the same time.
SCENARIOS_AT_ONCE = 8
SCENARIO_TIMEOUT_S = 240.0

NETWORKS: dict[str, tuple[Callable[[Path], LiveNetwork], int]] = {
    "nats": (lambda directory: NatsNetwork(directory, jetstream=False), LARGE_BYTES),
    "jetstream": (lambda directory: NatsNetwork(directory, jetstream=True), LARGE_BYTES),
    "mqtt": (MqttNetwork, LARGE_BYTES),
    "waku": (WakuNetwork, LARGE_BYTES),
    "waku-light": (LightWakuNetwork, LARGE_BYTES),
    "udp": (lambda directory: UdpNetwork(directory, loss=0.03), LARGE_BYTES),
}

Case = tuple[str, str]


async def play(case: Case, directory: Path) -> None:
    network, scenario = case
    make_network, large_bytes = NETWORKS[network]
    run = next(each for each in SCENARIOS if each.__name__ == scenario)  # type: ignore[attr-defined]
    async with World(make_network(directory), directory, large_bytes) as world:
        async with asyncio.timeout(SCENARIO_TIMEOUT_S):
            await run(world)


async def play_all(cases: list[Case], directory: Path) -> dict[Case, BaseException | None]:
    """What became of each; None where it passed."""
    at_once = asyncio.Semaphore(SCENARIOS_AT_ONCE)
    outcomes: dict[Case, BaseException | None] = {}

    async def one(case: Case) -> None:
        async with at_once:
            try:
                await play(case, directory / "-".join(case))
                outcomes[case] = None
            except Exception as error:
                outcomes[case] = error

    await asyncio.gather(*map(one, cases))
    return outcomes


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Case, BaseException | None]:
    """Plays every case of this module that was asked for."""
    asked = {
        (item.callspec.params["network"], item.callspec.params["scenario"])
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec") and "scenario" in item.callspec.params
    }
    order = [scenario.__name__ for scenario in SCENARIOS]  # type: ignore[attr-defined]
    cases = sorted(asked, key=lambda case: order.index(case[1]))
    return asyncio.run(play_all(cases, tmp_path_factory.mktemp("live")))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("scenario", [scenario.__name__ for scenario in SCENARIOS])  # type: ignore[attr-defined]
def test_live(network: str, scenario: str, outcomes: dict[Case, BaseException | None]) -> None:
    error = outcomes[network, scenario]
    if error is not None:
        raise error
