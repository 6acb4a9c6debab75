"""What `shardwire record` does: writes what a node hears into an archive, and says how much it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardwire.archive import Recorder
from shardwire.cli.network.interruption import Interruption
from shardwire.cli.network.output import Output

if TYPE_CHECKING:
    from shardwire.node.transport import TransportNode

# How often is looked whether there is something to tell.
LOOK_S = 0.5


async def record(
    node: TransportNode,
    interruption: Interruption,
    output: Output,
    *,
    topics: tuple[str, ...],
    directory: Path,
    rows_per_file: int,
    interval_ms: int,
    for_s: float | None,
) -> int:
    """Records until the user ends it, or time is up.

    Args:
        node: The node; not started.
        interruption: When to end.
        output: Where it is told.
        topics: What is recorded.
        directory: Gets the files.
        rows_per_file: When a file is written.
        interval_ms: Likewise.
        for_s: How long; None for no end of its own.

    Returns:
        0, or 1 where the node ended before.

    Raises:
        ShardwireError: The network cannot be used.
        OSError: The directory, or the standard output, cannot be written.
    """
    async with output.without_blocking(interruption):
        try:
            await interruption.unless(node.start())
            recorder = Recorder(node, topics, directory, rows_per_file=rows_per_file, interval_ms=interval_ms)
            async with recorder:
                output.event("recording", node=node.name, topics=list(topics), directory=str(directory))
                of = topics[0] if len(topics) == 1 else f"{len(topics)} topics"
                output.remark(f"what {node.name} hears of {of} goes into {directory}; Ctrl-C ends it")
                was_heard = await _until_done(recorder, interruption, output, for_s)
        finally:
            await node.stop()
        output.event("recorded", rows=recorder.rows_written, gaps=recorder.gaps)
        count = f"{recorder.rows_written:,} message{'' if recorder.rows_written == 1 else 's'}"
        output.result(f"{count} in {directory}")
        if not recorder.rows_written:
            output.remark(
                "nothing came: do others send on this topic, and what does `shardwire doctor` say of the node?"
            )
        if recorder.gaps:
            output.remark(f"{recorder.gaps} times messages may have passed the node by: the archive has gaps there")
        return int(not was_heard)


async def _until_done(recorder: Recorder, interruption: Interruption, output: Output, for_s: float | None) -> bool:
    """Whether it heard the node to the end."""
    left_s = for_s
    told = recorder.rows_written
    while recorder.is_hearing:
        step_s = LOOK_S if left_s is None else min(LOOK_S, left_s)
        if await interruption.wait(step_s) or output.failure is not None:
            return True
        if recorder.rows_written > told:
            told = recorder.rows_written
            output.event("written", rows=told, gaps=recorder.gaps)
        if left_s is not None:
            left_s -= step_s
            if left_s <= 0:
                return True
    return False
