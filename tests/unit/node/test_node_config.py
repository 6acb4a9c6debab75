"""What a node is configured with: its numbers, and what is said of its RLN membership (003 RateLimitConfig)."""

from __future__ import annotations

import pytest

from shardwire import create_reliable_channel
from shardwire.config import RateLimitConfig
from shardwire.errors import ConfigError
from shardwire.node import MemoryNetwork, NodeConfig, run_virtual

LIMIT = RateLimitConfig(enabled=True, messages_per_epoch=20, counts="segment")
NO_LIMIT = (
    "NodeConfig.rate_limit_config sets no limit: messages beyond the membership's quota are refused; set enabled=True, "
)
COUNTS_MESSAGES = "NodeConfig.rate_limit_config counts messages, where RLN counts segments"


@pytest.mark.parametrize(
    ("limit", "doubt"),
    [
        (None, NO_LIMIT),
        (RateLimitConfig(messages_per_epoch=20, counts="segment"), NO_LIMIT),
        (RateLimitConfig(enabled=True, messages_per_epoch=20, counts="message"), COUNTS_MESSAGES),
        (LIMIT, None),
    ],
)
def test_a_limit_that_does_not_fit_rln_is_told_once(
    limit: RateLimitConfig | None, doubt: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    NodeConfig(rate_limit_config=limit)
    assert caplog.messages == []
    NodeConfig(rate_limit_config=limit, rln=True)
    if doubt is None:
        assert caplog.messages == []
    else:
        (told,) = caplog.messages
        assert told.startswith(f"NodeConfig.rln is True and {doubt}")


def test_rln_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match=r"NodeConfig\.rln is 'yes': it must be True or False"):
        NodeConfig(rln="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["cluster_id", "num_shards_in_cluster", "max_message_size_bytes"])
def test_a_number_that_no_node_can_have_is_refused_where_it_is_given(name: str) -> None:
    """Not when a channel is made, or subscribes, by an `OverflowError`."""
    with pytest.raises(ConfigError, match=rf"NodeConfig\.{name} is {10**30}: it must be an integer from [01] to"):
        NodeConfig(**{name: 10**30})
    for value in (-1, True, 1.0, "5", None):
        with pytest.raises(
            ConfigError, match=rf"NodeConfig\.{name} is {value!r}: it must be an integer (of at least|from) [01]"
        ):
            NodeConfig(**{name: value})
    network = MemoryNetwork()

    async def main() -> None:
        largest = NodeConfig(**{name: 2**32 - 1 if name == "num_shards_in_cluster" else 2**63 - 1})
        async with (
            network.create_node("alice", largest) as node,
            create_reliable_channel(node, "c", "/a/1/b/proto", "alice") as channel,
        ):
            await channel.cancel(await channel.send(b"x"))

    run_virtual(main())
