"""Runs a plan: real channels on memory nodes in virtual time."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field, replace
from typing import Any

from shardwire.config import ChannelConfig, RateLimitConfig
from shardwire.node import MemoryNetwork, NetworkConditions, VirtualTimeError, run_virtual
from tests.simulation.chaos.application import Application
from tests.simulation.chaos.journal import Journal
from tests.simulation.chaos.plan import SEGMENT_SIZE_BYTES, Plan

EPOCH_MS = 60_000
# What was left behind on closing has ended by itself then: a call of a node, or of a callback.
LEFT_BEHIND_S = 200


@dataclass(slots=True)
class Evidence:
    """What a run leaves for the checks.

    Attributes:
        plan: What was planned.
        journals: Of all applications.
        trouble: What went wrong beside what applications see.
    """

    plan: Plan
    journals: list[Journal]
    trouble: list[str] = field(default_factory=list)


class _Listener(logging.Handler):
    """Notes what should never be logged."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(logging.CRITICAL)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        self._notes.append(f"logged: {record.getMessage()}")


def config_of(plan: Plan) -> ChannelConfig:
    """The configuration of every channel of a plan."""
    preset = ChannelConfig.waku() if plan.preset == "waku" else ChannelConfig.logos()
    return replace(
        preset,
        segmentation=replace(
            preset.segmentation, segment_size_bytes=SEGMENT_SIZE_BYTES, enable_reed_solomon=plan.parity
        ),
        sds=replace(
            preset.sds,
            message_id=plan.message_id,
            enable_repair=plan.repair,
            bloom_filter_capacity=500,
            outgoing_buffer_messages_max=plan.outgoing_buffer_messages_max,
            # Also under 004, which waits for ever: what was given up must hold up nothing in the end.
            timeout_for_lost_messages_ms=300_000,
        ),
        sync=replace(
            preset.sync, process_task_min_elapse_ms=max(plan.process_ms, preset.sync.process_task_min_elapse_ms)
        ),
        rate_limit=RateLimitConfig()
        if plan.messages_per_epoch is None
        else RateLimitConfig(
            enabled=True, epoch_size_ms=EPOCH_MS, messages_per_epoch=plan.messages_per_epoch, counts="segment"
        ),
        delivered_when=len(plan.names) - 1 if plan.delivered_by_all else "any",
        redelivery=plan.redelivery,
    )


def run_plan(plan: Plan) -> Evidence:
    """Runs a plan to its end; that it does not come to one is trouble."""
    evidence = Evidence(plan, [])
    commits = random.Random(f"commits/{plan.seed}")
    logger = logging.getLogger("shardwire")
    listener = _Listener(evidence.trouble)
    logger.addHandler(listener)
    try:
        run_virtual(
            _run(plan, evidence),
            limit_ms=plan.ends_ms + 3_600_000,
            executor_delay_ms=lambda: commits.randint(*plan.commit_ms),
        )
    except VirtualTimeError as error:
        evidence.trouble.append(f"does not end: {error}")
    finally:
        logger.removeHandler(listener)
    return evidence


async def _run(plan: Plan, evidence: Evidence) -> None:
    loop = asyncio.get_running_loop()

    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        evidence.trouble.append(f"the loop was told: {context.get('message')}: {context.get('exception')!r}")

    loop.set_exception_handler(note)
    conditions = NetworkConditions(loss=plan.loss, duplicate=plan.loss / 3, delay_ms=(1, 30), reorder=plan.loss)
    network = MemoryNetwork(conditions, seed=plan.seed, store=plan.store)
    config = config_of(plan)
    applications = {name: Application(name, plan, config, network) for name in plan.names}
    evidence.journals += [application.journal for application in applications.values()]
    for application in applications.values():
        await application.join()
    for action in plan.actions:
        await _until(action.at_ms)
        applications[action.name].do(action)
    await _until(plan.calm_ms)
    network.conditions = NetworkConditions(delay_ms=(1, 30))
    for application in applications.values():
        await application.calm_down()
    await _until(plan.ends_ms)
    for application in applications.values():
        await application.leave()
    await asyncio.sleep(LEFT_BEHIND_S)
    current = asyncio.current_task()
    names = sorted(task.get_name() for task in asyncio.all_tasks() if task is not current)
    evidence.trouble += [f"a task is left: {name}" for name in names]


async def _until(at_ms: int) -> None:
    await asyncio.sleep(max(0.0, at_ms / 1_000 - asyncio.get_running_loop().time()))
