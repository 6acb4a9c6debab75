"""What a node's configuration says of its RLN membership (003 RateLimitConfig)."""

from __future__ import annotations

import pytest

from shardwire.config import RateLimitConfig
from shardwire.errors import ConfigError
from shardwire.node import NodeConfig

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
