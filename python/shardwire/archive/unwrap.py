"""What wraps segments on their way: Waku messages, encryption, SDS messages. Taken off a batch at a time."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

import pyarrow as pa
import pyarrow.compute

from shardwire import _native
from shardwire.archive.arrow import PAYLOAD, SENDER, TIMESTAMP, Array, batch_of
from shardwire.config import SdsWireFormat, SegmentWireFormat
from shardwire.config.checks import check_list, check_path
from shardwire.encryption import AesGcmEncryption, ChaCha20Poly1305Encryption
from shardwire.errors import ConfigError, DecryptionError

CipherName = Literal["chacha20-poly1305", "aes-256-gcm"]

_CIPHERS: dict[CipherName, type[ChaCha20Poly1305Encryption] | type[AesGcmEncryption]] = {
    "chacha20-poly1305": ChaCha20Poly1305Encryption,
    "aes-256-gcm": AesGcmEncryption,
}
# The columns of a batch that is being unwrapped, see rust/python/src/arrow/unwrap.rs.
STATE_COLUMNS = ("payload", "timestamp", "sender", "send_id", "error")
# What may be around a segment, in the words of command lines: "decrypt" stands for `decrypt(...)`.
LAYERS = ("waku", "decrypt", "sds", "sds-nim")
_NAMED_STEPS = tuple(name for name in LAYERS if name != "decrypt")
# A column of `by` that the Waku messages give where the rows have none of this name.
TOPIC = "content_topic"


@dataclass(frozen=True, slots=True)
class Decrypt:
    """A step that decrypts. It knows where the executors find the key, never the key itself.

    Attributes:
        key_file: Path of a key file on every executor, as it was given.
        key_env: Name of an environment variable of every executor with the keys in hexadecimal digits.
        channel_id: The channel the messages belong to; None where they were encrypted without one.
        cipher: The cipher.
        driver_file: The same path from the root, as the driver has it: a relative one leads elsewhere on an executor.
    """

    key_file: str | None
    key_env: str | None
    channel_id: str | None
    cipher: CipherName
    driver_file: str | None = None

    def unwrap(self, state: pa.RecordBatch) -> pa.RecordBatch:
        """The state with every payload decrypted; one that does not decrypt gives an error."""
        encryption = _encryption(self)
        payloads, errors = state.column("payload"), state.column("error").to_pylist()
        contents: list[bytes | None] = []
        for row, payload in enumerate(payloads):
            content: bytes | None = None
            if payload.is_valid:
                try:
                    content = encryption.decrypt(payload.as_py())
                except DecryptionError as error:
                    # Rows are counted by their reason: what a peer wrote may not add to the number of reasons.
                    errors[row] = f"cannot be decrypted: {error.reason}"
            contents.append(content)
        columns = {name: state.column(name) for name in STATE_COLUMNS}
        columns["payload"] = pa.array(contents, type=pa.large_binary())
        columns["error"] = pa.array(errors, type=pa.string())
        return batch_of(columns)


# One layer of `unwrap=`. A list of them is annotated with it: a checker takes one of both kinds for `list[object]`.
UnwrapStep = Literal["waku", "sds", "sds-nim"] | Decrypt


def decrypt(
    *,
    key_file: str | os.PathLike[str] | None = None,
    key_env: str | None = None,
    channel_id: str | None = None,
    cipher: CipherName = "chacha20-poly1305",
) -> Decrypt:
    """The step of `unwrap=` that decrypts what `shardwire.encryption` encrypted.

    The keys are read on the executors when a task begins. They are in no plan, closure or log.

    Args:
        key_file: A key file as `from_key_file` reads it. An executor looks at this path, from its own directory on,
            where `SparkContext.addFile` puts files; then at the path that it has here.
        key_env: Instead: an environment variable of the executors with one or more keys in hexadecimal digits,
            separated by spaces or commas.
        channel_id: The id that the channel bound its encryption to, as every reliable channel does.
        cipher: "chacha20-poly1305" or "aes-256-gcm".

    Raises:
        ConfigError: Neither or both of `key_file` and `key_env`, an unknown cipher, or a `key_env` that is no name:
            a key itself does not belong there.
    """
    if (key_file is None) == (key_env is None):
        raise ConfigError("decrypt takes either key_file or key_env: give one of them")
    if cipher not in _CIPHERS:
        raise ConfigError(f"cipher is {cipher!r}: it must be one of {', '.join(map(repr, _CIPHERS))}")
    if channel_id is not None and not isinstance(channel_id, str):
        raise ConfigError(f"channel_id is a {type(channel_id).__name__}: it must be a text or None")
    # Not quoted: what stands there may be a key.
    if key_env is not None and not _is_variable(key_env):
        raise ConfigError("key_env is not the name of an environment variable: give its name, never the key")
    if key_file is None:
        return Decrypt(None, key_env, channel_id, cipher)
    check_path("key_file", key_file)
    return Decrypt(os.fspath(key_file), key_env, channel_id, cipher, os.path.abspath(key_file))


def steps_of(
    layers: Sequence[str],
    *,
    key_file: str | os.PathLike[str] | None,
    key_env: str | None,
    channel_id: str | None,
    cipher: str,
) -> list[UnwrapStep]:
    """The steps that the options of a command describe: `--unwrap` with `layers`, and what belongs to "decrypt".

    Raises:
        ConfigError: One is no layer, "decrypt" has no key, or both a file and a variable; or there is a key without it.
    """
    for name in layers:
        if name not in LAYERS:
            raise ConfigError(f"--unwrap is {name!r}: it must be one of {', '.join(LAYERS)}")
    if "decrypt" not in layers:
        # It would be passed over, and every row that it opens would count as no segment.
        given = {"--key-file": key_file, "--key-env": key_env, "--channel-id": channel_id}
        if idle := [option for option, value in given.items() if value is not None]:
            raise ConfigError(f"{idle[0]} is of --unwrap decrypt, which is missing: give that, too")
        return cast("list[UnwrapStep]", list(layers))
    if (key_file is None) == (key_env is None):
        raise ConfigError("--unwrap decrypt needs either --key-file or --key-env: give one of them")
    step = decrypt(key_file=key_file, key_env=key_env, channel_id=channel_id, cipher=cast("CipherName", cipher))
    return [step if name == "decrypt" else cast("UnwrapStep", name) for name in layers]


def check_steps(steps: Sequence[UnwrapStep], key: str | None = None) -> tuple[UnwrapStep, ...]:
    """The steps as a tuple.

    Raises:
        ConfigError: A step is none of those there are, or there is a `key` beside them.
    """
    check_list("unwrap", steps, "steps")
    for step in steps:
        if not isinstance(step, Decrypt) and step not in _NAMED_STEPS:
            raise ConfigError(f"unwrap step {step!r} is unknown: it must be 'waku', decrypt(...), 'sds' or 'sds-nim'")
    if key is not None and steps:
        raise ConfigError(f"key is {key!r} and unwrap has {len(steps)} steps: a key needs bare segments; leave one out")
    return tuple(steps)


def around_sds(steps: tuple[UnwrapStep, ...]) -> tuple[tuple[UnwrapStep, ...], SdsWireFormat] | None:
    """The steps around the SDS messages, and the wire of these; None where `steps` name no SDS."""
    for place, step in enumerate(steps):
        if step == "sds" or step == "sds-nim":
            return steps[:place], "spec" if step == "sds" else "nim"
    return None


def unwrap_batch(state: pa.RecordBatch, steps: Sequence[UnwrapStep]) -> tuple[pa.RecordBatch, Array | None]:
    """The state of a batch after every step, in order, and the content topics that its Waku messages name."""
    topics: Array | None = None
    for step in steps:
        if isinstance(step, Decrypt):
            state = step.unwrap(state)
        elif step == "waku":
            state = _native.arrow_unwrap_waku(state)
            topics = state.column(TOPIC)
        else:
            state = _native.arrow_unwrap_sds(state, "spec" if step == "sds" else "nim")
    return state, topics


@dataclass(frozen=True, slots=True)
class UnwrapSegments:
    """Wire messages in, segments with their message's hash out.

    A batch has those columns of `by` that the rows have, then payload, then timestamp and sender where the rows have
    them; what comes out is what `ArrowReconstructor` takes in. Messages that carry nothing of the application are left
    out.

    Attributes:
        by: The columns that keep messages apart.
        topic_from_waku: Whether `content_topic` among them is the one that the Waku messages name.
    """

    by: tuple[str, ...]
    steps: tuple[UnwrapStep, ...]
    wire_format: SegmentWireFormat
    max_total_segments: int
    topic_from_waku: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self._unwrap(batch)

    def _unwrap(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        place = batch.schema.get_field_index(PAYLOAD)
        given, payload = batch.columns[:place], batch.column(place)
        timestamp, sender = self._column(batch, TIMESTAMP), self._column(batch, SENDER)
        state, topics = unwrap_batch(state_of(payload, timestamp, sender), self.steps)
        state = _native.arrow_unwrap_segment(state, self.wire_format, self.max_total_segments)
        rest = iter(given)
        columns: dict[str, Array] = {}
        for name in self.by:
            columns[name] = topics if self.topic_from_waku and name == TOPIC and topics is not None else next(rest)
        for name, column in (
            ("hash", "entire_message_hash"),
            ("send_id", "send_id"),
            ("payload", "payload"),
            ("timestamp", "timestamp"),
            ("sender", "sender"),
            ("error", "error"),
        ):
            columns[f"shardwire_{name}"] = state.column(column)
        unwrapped = batch_of(columns)
        payload, error = state.column("payload"), state.column("error")
        if payload.null_count + error.null_count == batch.num_rows:
            return unwrapped
        kept = pa.compute.or_(payload.is_valid(), error.is_valid())
        return unwrapped.filter(kept)

    def _column(self, batch: pa.RecordBatch, name: str) -> Array:
        place = batch.schema.get_field_index(name)
        if place >= 0:
            return batch.column(place)
        return pa.nulls(batch.num_rows, pa.int64() if name == TIMESTAMP else pa.string())


def state_of(payload: Array, timestamp: Array, sender: Array) -> pa.RecordBatch:
    """The state of a batch before the first step."""
    nothing = pa.nulls(len(payload), pa.string())
    return batch_of(
        {"payload": payload, "timestamp": timestamp, "sender": sender, "send_id": nothing, "error": nothing}
    )


def _is_variable(name: object) -> bool:
    is_name = isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
    return is_name and re.fullmatch(r"[0-9a-fA-F]{64}", str(name)) is None


def _is_executor() -> bool:
    # What runs here was begun by Spark where its worker is loaded.
    return "pyspark.worker" in sys.modules


def _key_file(given: str, on_driver: str) -> str:
    """Where the key file is: at the path that was given, or at the one that this is for the driver.

    Raises:
        ConfigError: An executor has it at neither.
    """
    found = next((path for path in (given, on_driver) if os.path.lexists(path)), None)
    if found is not None or (os.path.abspath(given) == on_driver and not _is_executor()):
        return found or given
    where = "" if given == on_driver else f", neither in its own directory nor at {on_driver!r}, where the driver looks"
    raise ConfigError(
        f"key file {given!r} is not on this executor{where}: give an absolute path that every executor has, or ship it "
        f"with SparkContext.addFile({on_driver!r}) and name it {os.path.basename(given)!r}"
    )


@lru_cache(maxsize=16)
def _encryption(step: Decrypt) -> ChaCha20Poly1305Encryption | AesGcmEncryption:
    kind = _CIPHERS[step.cipher]
    if step.key_file is not None:
        encryption = kind.from_key_file(_key_file(step.key_file, step.driver_file or step.key_file))
    else:
        encryption = kind.from_environment(str(step.key_env), place=" of an executor" if _is_executor() else "")
    return encryption if step.channel_id is None else encryption.bind(step.channel_id)
