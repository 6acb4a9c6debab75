"""The check of a persistence."""

from __future__ import annotations

import contextlib
import threading
from array import array
from collections.abc import Callable, Sequence
from functools import partial

from shardwire.persistence.protocol import Changes, Persistence
from shardwire.testing.persistence_promises import PERSISTENCE_PROMISES
from shardwire.testing.persistence_store import CheckedStore, Midway, Records
from shardwire.testing.promises import BrokenPromiseError, CheckReport, Trial, require_factory, shown

LARGEST_VALUE_BYTES = 26_000_000
KEY_BYTES_MAX = 600
KIND_LETTERS_MAX = 32
CHANNEL_ID_BYTES_MAX = 300
MANY_RECORDS = 5_000
THREADS = 4
COMMITS_OF_A_THREAD = 25
# One that does not end waits for itself.
THREAD_WAIT_S = 60.0

# What is easily taken for one another, or for something else.
CHANNEL_IDS = (
    "",
    "id",
    "ID",
    "id ",
    "id\0",
    "id\0id",
    "../id",
    "id/id",
    "id%",
    "i_",
    "'; --",
    "\u00e9",
    "e\u0301",
    "\U0001f600",
    "\u00e9" * (CHANNEL_ID_BYTES_MAX // 2),
    "\u00e9" * (CHANNEL_ID_BYTES_MAX // 2 - 1) + "id",
)
KEYS = (
    b"",
    b"\0",
    b"\0\0",
    b"key",
    b"KEY",
    b"key\0",
    b"key\xff",
    b"key ",
    b"../key",
    b"\xff",
    b"\xff\xff",
    bytes(range(256)),
    b"k" * KEY_BYTES_MAX,
    b"k" * (KEY_BYTES_MAX - 1) + b"l",
)
KINDS = ("kind", "kind2", "KIND", "kind.k", "kin", "k" * KIND_LETTERS_MAX, "k" * (KIND_LETTERS_MAX - 1) + "l", "k_nd")


def check_persistence(open_store: Callable[[], Persistence], *, durable: bool = True) -> CheckReport:
    """Tries every promise that a channel needs of a persistence (Logos 003 Persistence); takes some seconds.

    Args:
        open_store: Opens the store, and each further time opens it anew at the same place, which is empty at first. The
            store before is closed by then.
        durable: Whether anything survives closing; False for a store that ends with its process.

    Returns:
        What was tried.

    Raises:
        BrokenPromiseError: A promise is broken.
        ConfigError: `open_store` opens nothing.
    """
    require_factory("open_store", open_store)
    trial = Trial(PERSISTENCE_PROMISES)
    with contextlib.ExitStack() as opened:
        # A broken one is closed as well: what is open may keep its place from being removed.
        _Check(trial, CheckedStore(trial, open_store, opened), durable).run()
    return trial.report()


class _Check:
    def __init__(self, trial: Trial, store: CheckedStore, durable: bool) -> None:
        self._trial = trial
        self._store = store
        self._durable = durable

    def run(self) -> None:
        trial = self._trial
        with trial.of("plain-methods"):
            self._store.open()
            trial.did("load, and a commit")
            self._store.load("plain")
            self._store.commit("plain", Changes({("kind", b"key"): b"value"}))
        with trial.of("never-stored"):
            trial.did("load of a channel that was never stored, from an empty place")
            state = self._store.load("never stored")
            trial.require(state is None, "None", state)
        self._round_trip()
        self._names()
        self._values()
        self._prefixes()
        self._failing()
        self._threads()
        self._release()
        if self._durable:
            self._reopen()
        else:
            for name in ("reopening", "commit-before-load"):
                trial.pass_over(name, "nothing survives closing: durable=False")
        with trial.of("closing-again"):
            trial.did("close, twice")
            self._store.close()
            self._store.close()

    # --- promises ---

    def _round_trip(self) -> None:
        with self._trial.of("round-trip"):
            self._store.commit("channel", Changes({("kind", b"key"): b"value", ("kind", b"other"): b"other value"}))
            self._store.verify("channel")
        with self._trial.of("last-commit-stands"):
            for number in range(10):
                self._store.commit(
                    "channel", Changes({("kind", b"key"): b"%d" % number, ("kind", b"%d" % number): b"v"})
                )
            self._store.verify("channel")
        with self._trial.of("deletion"):
            self._store.commit("deletion", Changes({("kind", b"key"): b"value", ("kind", b"other"): b"value"}))
            self._store.commit("deletion", Changes({("kind", b"key"): None, ("kind", b"none"): None}))
            self._store.verify("deletion")
            self._store.commit("deletion", Changes({("kind", b"other"): None}))
            self._store.verify("deletion")

    def _names(self) -> None:
        with self._trial.of("any-key"):
            self._store.commit("keys", Changes({("kind", key): b"%d" % number for number, key in enumerate(KEYS)}))
            self._store.verify("keys")
            self._store.commit("keys", Changes({("kind", b"key"): None, ("kind", b"\0"): None}))
            self._store.verify("keys")
        with self._trial.of("any-kind"):
            self._store.commit("kinds", Changes({(kind, b"key"): kind.encode() for kind in KINDS}))
            self._store.commit("kinds", Changes({("kind", b"key"): None}))
            self._store.verify("kinds")
        with self._trial.of("any-channel-id"):
            for channel_id in CHANNEL_IDS:
                self._trial.did(f"load of the channel {channel_id!r}, after commits for others")
                state = self._store.load(channel_id)
                self._trial.require(state is None, "None, for a channel that was never stored", state)
                self._store.commit(channel_id, Changes({("kind", b"key"): b"of " + channel_id.encode()}))
            for channel_id in CHANNEL_IDS:
                self._store.verify(channel_id)

    def _values(self) -> None:
        with self._trial.of("empty-values"):
            self._store.commit("values", Changes({("kind", b""): b"", ("kind", b"key"): b""}))
            self._store.verify("values")
        with self._trial.of("large-values"):
            # Of which no part is like another, so that a missing one shows.
            large = array("I", range(LARGEST_VALUE_BYTES // array("I").itemsize)).tobytes()
            self._store.commit("large values", Changes({("kind", b"large"): large, ("kind", b"small"): b"small"}))
            self._store.verify("large values")
        with self._trial.of("many-records"):
            names = [("kind", number.to_bytes(2, "big")) for number in range(MANY_RECORDS)]
            self._store.commit("many", Changes({name: name[1] for name in names}))
            self._store.verify("many")
            self._store.commit("many", Changes(dict.fromkeys(names[1:])))
            self._store.verify("many")

    def _prefixes(self) -> None:
        begun = (b"", b"a", b"a\0", b"ab", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff", b"%", b"A", b"A%")
        with self._trial.of("deleted-prefixes"):
            for number, prefix in enumerate((b"a", b"a\xff", b"\xff", b"%", b"")):
                channel_id = f"prefixes {number}"
                self._store.commit(
                    channel_id, Changes({(kind, key): b"v" for kind in ("kind", "kind2") for key in begun})
                )
                self._store.commit(channel_id, Changes({}, {("kind", prefix)}))
                self._store.verify(channel_id)
            self._store.commit("prefixes", Changes({("kind", key): b"v" for key in begun}))
            self._store.commit("prefixes", Changes({}, {("kind", b"a"), ("kind", b"b")}))
            self._store.verify("prefixes")
        with self._trial.of("prefixes-first"):
            self._store.commit("first", Changes({("kind", b"ab"): b"1", ("kind", b"ac"): b"2"}))
            self._store.commit("first", Changes({("kind", b"a"): b"3", ("kind", b"ac"): b"4"}, {("kind", b"a")}))
            self._store.verify("first")
        with self._trial.of("same-changes-again"):
            changes = Changes({("kind", b"a"): b"1", ("kind", b"b"): None, ("kind", b"c"): b""}, {("kind", b"a")})
            for _ in range(2):
                self._store.commit("again", changes)
                self._store.verify("again")
        with self._trial.of("no-changes"):
            for channel_id in ("again", "no changes"):
                self._store.commit(channel_id, Changes())
                self._store.verify(channel_id)

    def _failing(self) -> None:
        """A commit fails where a disk is full, say. No store can be told to: what it is given fails it midway."""
        trial = self._trial
        with trial.of("all-or-nothing"):
            stored: Records = {("kind", b"a1"): b"1", ("kind", b"b1"): b"1"}
            for channel_id, before, is_loaded in (("half", stored, True), ("new", {}, True), ("unseen", stored, False)):
                if before:
                    self._store.commit(channel_id, Changes(dict(before)))
                wanted = {("kind", b"b%d" % number): b"2" for number in range(4)}
                trial.did(f"a commit for channel {channel_id!r} that {shown(dict(before))} was in, which raised midway")
                records = Midway(wanted)
                try:
                    self._store.call("commit", channel_id, Changes(records, {("kind", b"a")}))
                    # Made all the same.
                    self._store.apply(channel_id, Changes(dict(wanted), {("kind", b"a")}))
                except BrokenPromiseError:
                    raise
                except Exception as error:
                    trial.did(f"a commit that raised midway ({type(error).__name__}) for channel {channel_id!r}")
                if is_loaded:
                    self._store.verify(channel_id, keep_done=True)
                # What a store took in before it failed may come with the next commit.
                self._store.commit(channel_id, Changes({("kind", b"c"): b"3"}))
                trial.did(f"a commit that raised midway for channel {channel_id!r}, and one that did not")
                self._store.verify(channel_id, keep_done=True)

    def _threads(self) -> None:
        trial, store = self._trial, self._store
        with trial.of("other-threads"):
            for step in (
                lambda: store.commit("threads", Changes({("kind", b"key"): b"1"})),
                lambda: store.verify("threads"),
                lambda: store.commit("threads", Changes({("kind", b"key"): b"2"})),
            ):
                self._run_in_threads([step])
            store.verify("threads")
        with trial.of("channels-at-once"):
            done = f"{COMMITS_OF_A_THREAD} commits for each of {THREADS} channels, each in a thread of its own"
            trial.did(done)
            channel_ids = [f"at once {number}" for number in range(THREADS)]
            together = threading.Barrier(THREADS)

            def commit_many(channel_id: str) -> None:
                try:
                    for number in range(COMMITS_OF_A_THREAD):
                        together.wait()
                        store.call("commit", channel_id, Changes({("kind", b"%d" % number): channel_id.encode()}))
                except threading.BrokenBarrierError:
                    # Another one failed, and says so.
                    pass
                except BaseException:
                    together.abort()
                    raise

            self._run_in_threads([partial(commit_many, channel_id) for channel_id in channel_ids])
            for channel_id in channel_ids:
                for number in range(COMMITS_OF_A_THREAD):
                    store.apply(channel_id, Changes({("kind", b"%d" % number): channel_id.encode()}))
                trial.did(done)
                store.verify(channel_id, keep_done=True)

    def _run_in_threads(self, steps: Sequence[Callable[[], None]]) -> None:
        """Runs each in a thread of its own, and raises what the first of them raised."""
        errors: list[BaseException] = []

        def work(step: Callable[[], None]) -> None:
            try:
                step()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(step,), daemon=True) for step in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(THREAD_WAIT_S)
        if errors:
            raise errors[0]
        hung = any(thread.is_alive() for thread in threads)
        self._trial.require(not hung, "that each returns", f"nothing within {THREAD_WAIT_S:g} s")

    def _release(self) -> None:
        if not self._store.has("release"):
            self._trial.pass_over("release", "it has no release()")
            return
        with self._trial.of("release"):
            self._trial.did("load and release of channel 'channel'")
            self._store.load("channel")
            self._store.call("release", "channel")
            for channel_id in ("channel", "many"):
                self._store.verify(channel_id)
                self._store.commit(channel_id, Changes({("kind", b"released"): b"1"}))
                self._store.verify(channel_id)

    def _reopen(self) -> None:
        trial = self._trial
        with trial.of("reopening"):
            self._store.reopen()
            for channel_id in self._store.expected:
                trial.did("close, and open_store")
                self._store.verify(channel_id, keep_done=True)
        with trial.of("commit-before-load"):
            self._store.commit("unloaded", Changes({("kind", b"a"): b"1", ("kind", b"b"): b"1"}))
            self._store.reopen()
            self._store.commit("unloaded", Changes({("kind", b"b"): None, ("kind", b"c"): b"2"}))
            self._store.verify("unloaded")
