"""A process that is forked while a channel is open: the channel stays its parent's."""

from __future__ import annotations

import subprocess
import sys

FORKING = """
import asyncio, os, sys
from shardwire import create_reliable_channel
from shardwire.node import MemoryNetwork

async def main():
    network, topic = MemoryNetwork(), "/shardwire/1/test/proto"
    async with network.create_node("a") as one, network.create_node("b") as other:
        async with create_reliable_channel(one, "c", topic, "alice") as alice:
            async with create_reliable_channel(other, "c", topic, "bob") as bob:
                bob.on_message_received(lambda event: None)
                child = os.fork()
                if not child:
                    sys.exit(3)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
                assert await alice.delivered(await alice.send(b"x")) == {"bob"}
    print("closed")

asyncio.run(main())
"""


def test_a_forked_process_that_exits_leaves_the_channels_and_nodes_of_its_parent_alone() -> None:
    run = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60)
    assert run.stdout == "closed\n", run.stderr
    assert "Traceback" not in run.stderr


USING_A_COPY = """
import asyncio, os
from shardwire import ChannelConfig, MemoryPersistence, SdsConfig, create_reliable_channel
from shardwire.node import MemoryNetwork

config = ChannelConfig.logos(sds=SdsConfig(persistence=MemoryPersistence()))

async def main(forks):
    async with MemoryNetwork().create_node("a") as node:
        async with create_reliable_channel(node, "c", "/shardwire/1/test/proto", "alice", config=config):
            child = os.fork() if forks else 1
            if not child:
                asyncio.run(main(False))
                os._exit(3)
            if forks:
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

asyncio.run(main(True))
"""


def test_a_forked_process_may_use_its_copy_of_a_state_in_memory() -> None:
    run = subprocess.run([sys.executable, "-c", USING_A_COPY], capture_output=True, text=True, timeout=60)
    assert run.stdout == "3\n", run.stderr
