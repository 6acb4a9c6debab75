"""What `shardwire monitor` does: takes part in a channel as a listener, and serves a page about it."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from shardwire.cli.network.interruption import Interruption
from shardwire.cli.network.participation import Participation, taking_part
from shardwire.monitor import Monitor


async def monitor(
    participation: Participation, interruption: Interruption, *, host: str, port: int, allow_hosts: Collection[str]
) -> int:
    """Serves the page until the user ends it.

    Args:
        participation: Who takes part in what.
        interruption: When to end.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        allow_hosts: Names under which browsers reach it.

    Raises:
        OSError: The address cannot be listened on.
        ShardwireError: The state or the network cannot be used.
    """
    async with taking_part(participation, interruption) as member:
        # As a listener takes them, and shows none.
        member.channel.on_message_received(lambda event: None)
        async with Monitor(member.channel, host, port, allow_hosts=allow_hosts) as page:
            member.output.event("monitoring", url=page.url)
            member.output.result(f"{page.url} shows {participation.channel}; Ctrl-C ends it")
            if not _is_loopback(page.url):
                member.output.remark("whoever reaches this port reads who takes part and how much is sent")
            await interruption.wait()
    return 0


def _is_loopback(url: str) -> bool:
    address = url.removeprefix("http://").rpartition(":")[0].strip("[]")
    return ipaddress.ip_address(address).is_loopback
