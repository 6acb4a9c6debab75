"""The application of one participant: it does what the plan says, and writes down what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from shardwire import ChannelConfig, ReliableChannel, close_channel, create_reliable_channel
from shardwire.errors import ChannelClosedError, ConfigError, NodeError, PersistenceError, QueueFullError
from shardwire.events import ChannelEvent, MessageReceivedEvent
from shardwire.node import MemoryNetwork, NodeConfig
from tests.simulation.chaos.faults import Disk, Fault, FaultyCipher, FaultyNode, Mount
from tests.simulation.chaos.journal import Call, Cancellation, Ended, Journal, Received, RequestIds, Told
from tests.simulation.chaos.plan import Action, Plan

CHANNEL_ID = "chaos"
TOPIC = "/simulation/1/chaos/proto"
# Longer than any drain, callback or call that is given up on closing takes.
CLOSES_WITHIN_S = 120
JOINS_AGAIN_S = 1
RAISED = (ChannelClosedError, NodeError, PersistenceError, TimeoutError, ConfigError)


class Application:
    """One participant through all of its lives."""

    def __init__(self, name: str, plan: Plan, config: ChannelConfig, network: MemoryNetwork) -> None:
        self.name = name
        self.journal = Journal(name)
        self.channel: ReliableChannel | None = None
        self._plan = plan
        self._config = config
        self._network = network
        self._rng = random.Random(f"{plan.seed}/{name}")
        self._faults = {kind: Fault(self._rng) for kind in ("node", "disk", "cipher", "callbacks")}
        self.disk = Disk(self._faults["disk"])
        self._life = 0
        self._mount: Mount | None = None
        self._node: FaultyNode | None = None
        self._ids = RequestIds("")
        self._joining = asyncio.Lock()
        self._is_calm = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- lives ---

    async def join(self) -> None:
        """Opens the channel as the disk remembers it, unless it is open."""
        async with self._joining:
            if self.channel is not None:
                return
            self._life += 1
            life, was_calm = self._life, self._is_calm.is_set()
            if self._node is None:
                inner = self._network.create_node(self.name, NodeConfig())
                self._node = FaultyNode(inner, self._faults["node"])
                await inner.start()
            self._mount = self.disk.mount(inline=self._plan.inline_commits)
            self._ids = RequestIds(f"{self._plan.seed}/{self.name}/{life}")
            config = replace(self._config, sds=replace(self._config.sds, persistence=self._mount))
            cipher = None
            if self._plan.cipher != "none":
                cipher = FaultyCipher(self._faults["cipher"], is_async=self._plan.cipher == "async")
            try:
                channel = await create_reliable_channel(
                    self._node, CHANNEL_ID, TOPIC, self.name, cipher, config, rng=self._ids
                )
            except (PersistenceError, NodeError) as error:
                # The first life stores who it is; every one subscribes, and a crash may take the node away.
                if life == self._life:
                    if was_calm:
                        self.journal.trouble.append(f"could not join: {error}")
                    self._end_life(crashed=False)
                    self._mount = None
                return
            if life != self._life:
                self._spawn(self._close(channel, 0))
                return
            self.channel = channel
            self._listen(channel, life)

    def _listen(self, channel: ReliableChannel, life: int) -> None:
        async def on_received(event: MessageReceivedEvent) -> None:
            if life == self._life:
                self.journal.received.append(Received(life, event.sender_id, event.message, event.redelivered))
            await self._misbehave()

        async def on_event(event: ChannelEvent) -> None:
            request_id = getattr(event, "request_id", None)
            if request_id is None:
                return
            told = Told(self.journal.place(), life, event, request_id)
            if life == self._life:
                self.journal.told.append(told)
            try:
                await self._misbehave()
            finally:
                told.done_s = self._loop.time()

        channel.on_message_received(on_received)
        channel.on(ChannelEvent, on_event)

    async def _misbehave(self) -> None:
        mode = self._faults["callbacks"].draw()
        if mode == "raises":
            raise RuntimeError("the callback broke")
        if mode == "slow":
            await asyncio.sleep(self._rng.choice((0.01, 0.2, 0.9)))
        if mode == "hangs":
            await self._is_calm.wait()

    async def _crash(self) -> None:
        """Ends a life at once: nothing is stored, sent or heard after this moment."""
        if self._mount is None or self._node is None:
            return
        self._end_life(crashed=True)
        node, channel = self._node, self.channel
        self._mount = self._node = self.channel = None
        await node.stop()
        if channel is not None:
            await self._close(channel, 0)

    def _end_life(self, *, crashed: bool) -> None:
        assert self._mount is not None
        cut_off = crashed or self._faults["disk"].is_on
        self.journal.ends[self._life] = Ended(cut_off, self._mount.stored_s)
        if crashed:
            self._mount.cut_power()
            self._life += 1

    async def _restart(self, drain_ms: int) -> None:
        channel, life = self.channel, self._life
        if channel is None:
            return
        self.channel = None
        async with self._joining:
            await self._close(channel, drain_ms)
            if life == self._life and life not in self.journal.ends:
                self._end_life(crashed=False)
                self._mount = None

    async def _close(self, channel: ReliableChannel, drain_ms: int) -> None:
        try:
            async with asyncio.timeout(CLOSES_WITHIN_S):
                await close_channel(channel, drain_ms)
        except TimeoutError:
            self.journal.trouble.append("close does not end")

    async def calm_down(self) -> None:
        """Nothing fails any more, and the channel is open and started."""
        for fault in self._faults.values():
            fault.clear()
        self._is_calm.set()
        while True:
            if self._node is not None:
                self._node.inner.go_online()
            await self.join()
            with contextlib.suppress(ChannelClosedError):
                if self.channel is not None and not self.channel.is_closed():
                    await self.channel.start()
                    return
            self.journal.trouble += ["the channel has closed by itself"] * (self.channel is not None)
            self.channel = None
            await asyncio.sleep(JOINS_AGAIN_S)

    async def leave(self) -> None:
        """Ends the last life."""
        if self.channel is not None:
            self.journal.pending = {entry.request_id for entry in self.channel.pending()}
            await self._close(self.channel, 0)
        for task in self._tasks:
            self.journal.trouble.append(f"does not end: {task.get_name()}")
        if self._node is not None:
            await self._node.stop()

    # --- actions ---

    def do(self, action: Action) -> None:
        """Begins an action."""
        self._spawn(self._do(action), f"{action.kind} at {action.at_ms} ms")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str = "closing") -> None:
        task = asyncio.create_task(self._watch(work, name), name=f"{self.name}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception as error:
            self.journal.trouble.append(f"{name} raised {error!r}")

    async def _do(self, action: Action) -> None:
        lasts_s = action.lasts_ms / 1_000
        match action.kind:
            case "send":
                await self._send(action.payload)
            case "send cancelled":
                await self._send_and_cancel_the_call(action.payload, action.lasts_ms)
            case "burst":
                for part in range(6):
                    self._spawn(self._send(action.payload + bytes(part)), f"burst at {action.at_ms} ms")
            case "ephemeral":
                # Told from what is sent reliably; the draft wire refuses an empty one.
                await self._send(action.payload and b"ephemeral " + action.payload[:500], ephemeral=True)
            case "cancel":
                await self._cancel(action.choice)
            case "cancel and send again":
                await self._cancel_and_send_again(action.choice)
            case "await delivered":
                await self._await_delivered(action)
            case "stop":
                await self._stop(lasts_s)
            case "restart":
                await self._restart(action.lasts_ms if action.share < 1 else 0)
                await asyncio.sleep(lasts_s)
                await self.join()
            case "crash":
                await self._crash()
                await asyncio.sleep(lasts_s)
                await self.join()
            case "offline":
                if self._node is not None:
                    node = self._node.inner
                    node.go_offline()
                    await asyncio.sleep(lasts_s)
                    node.go_online()
            case _:
                fault = self._faults[action.kind.split()[0]]
                token = fault.begin(action.mode, action.share)
                await asyncio.sleep(lasts_s)
                fault.end(token)

    async def _send(self, payload: bytes, *, ephemeral: bool = False, call: Call | None = None) -> None:
        channel, life = self.channel, self._life
        if channel is None:
            return
        call = call or Call(self.journal.place(), life, payload, ephemeral)
        self.journal.calls.append(call)
        # Drawn before anything else happens.
        self._ids.call = call
        sending = channel.send_ephemeral(payload) if ephemeral else channel.send(payload)
        try:
            request_id = await sending
        except ChannelClosedError:
            return
        except PersistenceError:
            call.outcome = "not stored" if life == self._life else "unknown"
            return
        except (ConfigError, QueueFullError):
            call.outcome = "refused"
            return
        finally:
            if self._ids.call is call:
                self._ids.call = None
        if life == self._life:
            call.outcome = "returned"
            if call.request_id != request_id:
                self.journal.trouble.append(f"send returned {request_id}, not the id that was drawn for it")

    async def _send_and_cancel_the_call(self, payload: bytes, after_ms: int) -> None:
        call = Call(self.journal.place(), self._life, payload)
        sending = asyncio.create_task(self._send(payload, call=call))
        await asyncio.sleep(after_ms / 1_000)
        if not sending.done():
            call.outcome = "cancelled"
            sending.cancel()
        await asyncio.wait({sending})
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error

    def _choose(self, choice: int) -> Call | None:
        """A call that returned: mostly one that is pending, and a late one sooner than an early one."""
        calls = [call for call in self.journal.calls if call.outcome == "returned" and not call.ephemeral]
        if self.channel is not None and choice % 5:
            waiting = {entry.request_id for entry in self.channel.pending() if not entry.sent}
            calls = [call for call in calls if call.request_id in waiting] or calls
        return calls[-1 - min(choice % 7, choice // 7 % len(calls))] if calls else None

    async def _cancel(self, choice: int) -> None:
        call = self._choose(choice)
        if self.channel is None or call is None or call.request_id is None:
            return
        life = self._life
        cancellation = Cancellation(call.request_id, life)
        self.journal.cancellations.append(cancellation)
        try:
            cancelled = await self.channel.cancel(call.request_id)
        except ChannelClosedError:
            return
        except PersistenceError:
            cancellation.outcome = "not stored" if life == self._life else "unknown"
        else:
            if life == self._life:
                cancellation.outcome = "returned" if cancelled else "refused"
        cancellation.at = self.journal.place()

    async def _cancel_and_send_again(self, choice: int) -> None:
        call = self._choose(choice)
        if call is not None:
            # In one cycle of the channel.
            first, then = self._cancel(choice), self._send(call.payload)
            await asyncio.gather(*((first, then) if choice % 3 else (then, first)))

    async def _await_delivered(self, action: Action) -> None:
        call = self._choose(action.choice)
        if self.channel is not None and call is not None and call.request_id is not None:
            with contextlib.suppress(*RAISED):
                await self.channel.delivered(call.request_id, timeout_ms=action.lasts_ms)

    async def _stop(self, lasts_s: float) -> None:
        channel = self.channel
        if channel is not None:
            await channel.stop()
            await asyncio.sleep(lasts_s)
            with contextlib.suppress(ChannelClosedError, NodeError):
                await channel.start()
