"""What a node's refusal to publish means: texts of go-waku, nwaku and logos-delivery, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardwire.node.transport import Answer, Passing, PassingUntil, Permanent, Published, Restamp
from shardwire.quoting import LINE_CHARACTERS_MAX, one_line

# Refusals of a proof in a row before it is the operator's to look.
PROOF_REFUSALS_MAX = 5


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a refusal means, and what else it says about the node.

    Attributes:
        answer: For the outbox.
        disconnected: The node reaches nobody.
        no_relay: The node has no relay: it publishes by lightpush.
        not_subscribed: The node has to be subscribed to the shard first.
    """

    answer: Answer
    disconnected: bool = False
    no_relay: bool = False
    not_subscribed: bool = False


@dataclass(frozen=True, slots=True)
class _Rule:
    """Applies where the status is one of these, or of any where empty, and one of the texts is contained."""

    statuses: tuple[int, ...]
    texts: tuple[str, ...]
    refusal: Callable[[str, int], Refusal]


def _passing(text: str, epoch_left_ms: int) -> Refusal:
    return Refusal(Passing(text))


def _permanent(text: str, epoch_left_ms: int) -> Refusal:
    return Refusal(Permanent(text))


def _restamped(text: str, epoch_left_ms: int) -> Refusal:
    return Refusal(Restamp(text))


def _restamped_at_most(text: str, epoch_left_ms: int) -> Refusal:
    return Refusal(Restamp(f"RLN: node clock or membership: {text}", PROOF_REFUSALS_MAX))


def _next_epoch(text: str, epoch_left_ms: int) -> Refusal:
    return Refusal(PassingUntil(text, epoch_left_ms))


def _alone(text: str, epoch_left_ms: int) -> Refusal:
    return Refusal(Passing(text), disconnected=True)


# In order: the first that applies counts. Texts are in lower case.
_RULES = (
    _Rule((), ("message size exceeds", "message size exceeded maximum of"), _permanent),
    _Rule((413,), ("",), _permanent),
    _Rule((), ("dropping already-seen message",), lambda text, left: Refusal(Published())),
    _Rule((), ("nonce limit reached", "noncelimitreached"), _next_epoch),
    _Rule((), ("stale rln proof suspected",), _restamped),
    _Rule((), ("identity credentials are not set", "membership index is not set"), _permanent),
    _Rule((), ("user message limit is not set",), _permanent),
    _Rule((), ("error appending rln proof to message",), _passing),
    _Rule((), ("rln validation failed",), _restamped_at_most),
    _Rule((), ("validation throttled", "validation queue full", "validation ignored"), _passing),
    _Rule((400,), ("validation failed",), _restamped_at_most),
    _Rule((), ("pubsub hasn't been set",), lambda text, left: Refusal(Passing(text), no_relay=True)),
    _Rule((), ("not enough peers to publish", "cannot publish to unsubscribed topic"), _alone),
    _Rule((), ("nopeerstopublish", "no peers for topic"), _alone),
    _Rule((), ("no suitable service peer", "no suitable remote peers"), _alone),
    _Rule((), ("node not subscribed to topic",), lambda text, left: Refusal(Passing(text), not_subscribed=True)),
    _Rule((), ("missing payload field", "missing contenttopic field", "invalid length for meta field"), _permanent),
    _Rule((), ("invalid content topic format", "invalid message", "invalid push request"), _permanent),
    _Rule((), ("unable to deserialize data", "autosharding is disabled", "autosharding error"), _permanent),
    _Rule((421,), ("",), _permanent),
)


def refusal_of(status: int, body: bytes, epoch_left_ms: int) -> Refusal:
    """What an answer other than 200 to a publish means; one that is not known is passing.

    Args:
        status: HTTP status.
        body: Of the answer: a text, or JSON with one.
        epoch_left_ms: How long the present RLN epoch lasts.
    """
    text = shown(body)
    told = f"{status}: {text}" if text else str(status)
    if status == 400 and not text:
        # What go-waku says of a body that it cannot read.
        return Refusal(Permanent("400: the node cannot read the message"))
    lowered = text.lower()
    for rule in _RULES:
        if (not rule.statuses or status in rule.statuses) and any(part in lowered for part in rule.texts):
            return rule.refusal(told, epoch_left_ms)
    return Refusal(Passing(told))


def shown(body: bytes) -> str:
    """A server's text in one line, cut to a length for logs."""
    return one_line(body[: 4 * LINE_CHARACTERS_MAX].decode(errors="replace"))
