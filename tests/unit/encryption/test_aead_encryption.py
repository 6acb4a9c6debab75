from __future__ import annotations

import copy
import errno
import hashlib
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from shardwire.encryption import AesGcmEncryption, ChaCha20Poly1305Encryption, Encryption
from shardwire.errors import ConfigError, DecryptionError, MissingLibraryError

CIPHERS = [ChaCha20Poly1305Encryption, AesGcmEncryption]
Cipher = type[ChaCha20Poly1305Encryption] | type[AesGcmEncryption]

pytestmark = pytest.mark.parametrize("cipher", CIPHERS)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 4096, 102_400])
def test_what_is_encrypted_decrypts_and_grows_by_the_overhead(cipher: Cipher, length: int) -> None:
    encryption = cipher([cipher.generate_key()])
    assert isinstance(encryption, Encryption)
    content = os.urandom(length)
    payload = encryption.encrypt(content)
    assert len(payload) == length + encryption.overhead_bytes
    assert encryption.decrypt(payload) == content


def test_the_same_content_never_looks_the_same(cipher: Cipher) -> None:
    encryption = cipher([cipher.generate_key()])
    payloads = {encryption.encrypt(b"content") for _ in range(1000)}
    nonces = {payload[5:17] for payload in payloads}
    assert len(nonces) == 1000


def test_the_layout_is_readable_with_the_library_alone(cipher: Cipher) -> None:
    key = cipher.generate_key()
    payload = cipher(key).bind("room").encrypt(b"content")
    library = ChaCha20Poly1305(key) if cipher is ChaCha20Poly1305Encryption else AESGCM(key)
    header, nonce, sealed = payload[:5], payload[5:17], payload[17:]
    name = b"chacha20-poly1305" if cipher is ChaCha20Poly1305Encryption else b"aes-256-gcm"
    assert header == b"\x01" + hashlib.sha256(b"shardwire/encryption/1\x00" + name + b"\x00" + key).digest()[:4]
    associated = b"shardwire/encryption/1\x00" + header + b"\x01room"
    assert library.decrypt(nonce, sealed, associated) == b"content"


def test_every_altered_bit_and_every_truncation_is_refused(cipher: Cipher) -> None:
    encryption = cipher([cipher.generate_key()]).bind("room")
    payload = encryption.encrypt(b"content")
    for position in range(len(payload) * 8):
        altered = bytearray(payload)
        altered[position // 8] ^= 1 << position % 8
        with pytest.raises(DecryptionError):
            encryption.decrypt(bytes(altered))
    for length in range(len(payload)):
        with pytest.raises(DecryptionError):
            encryption.decrypt(payload[:length])
    assert encryption.decrypt(payload) == b"content"


def test_a_message_of_another_channel_is_refused(cipher: Cipher) -> None:
    unbound = cipher([cipher.generate_key()])
    # The last one is half of a surrogate pair.
    ids = ["", "a", "b", "a\x00", "\ud800"]
    all_of_them = [unbound, *(unbound.bind(channel_id) for channel_id in ids)]
    for place, writer in enumerate(all_of_them):
        payload = writer.encrypt(b"content")
        for other, reader in enumerate(all_of_them):
            if other == place:
                assert reader.decrypt(payload) == b"content"
            else:
                with pytest.raises(DecryptionError, match="another channel"):
                    reader.decrypt(payload)


def test_the_first_key_writes_and_every_key_reads(cipher: Cipher) -> None:
    old_key, new_key = cipher.generate_key(), cipher.generate_key()
    old, new, both = cipher([old_key]), cipher([new_key]), cipher([new_key, old_key])
    assert both.decrypt(old.encrypt(b"content")) == b"content"
    assert new.decrypt(both.encrypt(b"content")) == b"content"
    with pytest.raises(DecryptionError, match="no key with id"):
        old.decrypt(both.encrypt(b"content"))


def test_the_other_cipher_with_the_same_key_is_refused(cipher: Cipher) -> None:
    (other,) = [kind for kind in CIPHERS if kind is not cipher]
    key = cipher.generate_key()
    with pytest.raises(DecryptionError, match="no key with id"):
        other(key).decrypt(cipher(key).encrypt(b"content"))


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ([], "0 keys were given: it takes 1 to 256"),
        ([b"\x01" * 31], "key 0 has 31 bytes: it must have 32"),
        ([b"\x01" * 32, b"\x02" * 33], "key 1 has 33 bytes"),
        ([b"\x01" * 32, b"\x01" * 32], "a key was given twice"),
        (["\x01" * 32], "key 0 is a str: it must be bytes"),
        ([bytes([number]) * 32 for number in range(256)] + [b"ab" * 16], "257 keys were given"),
        (7, "keys is a int: it must be 32 bytes, or several keys"),
    ],
)
def test_wrong_keys_are_refused_at_once(cipher: Cipher, keys: list[bytes], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        cipher(keys)


def test_keys_of_one_id_are_refused(cipher: Cipher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cipher, "_key_id", staticmethod(lambda key: b"same"))
    with pytest.raises(ConfigError, match="two keys share an id: generate another key"):
        cipher([cipher.generate_key(), cipher.generate_key()])


def test_keys_and_ciphertexts_may_lie_in_any_buffer(cipher: Cipher) -> None:
    key = bytearray(cipher.generate_key())
    same = cipher(bytes(key))
    for given in (key, memoryview(key), [key], [memoryview(key)]):
        payload = cipher(given).encrypt(b"content")  # type: ignore[arg-type]
        assert same.decrypt(bytearray(payload)) == same.decrypt(memoryview(payload)) == b"content"
    # Whoever wipes the buffer afterwards changes nothing.
    held = cipher(key)
    name = repr(held)
    key[:] = bytes(32)
    assert repr(held) == name
    assert same.decrypt(held.encrypt(b"content")) == b"content"


def test_why_a_ciphertext_is_refused_is_told_without_what_its_sender_wrote(cipher: Cipher) -> None:
    encryption = cipher(cipher.generate_key()).bind("room")
    payload = encryption.encrypt(b"content")
    for refused, text, reason in (
        (payload[:10], "10 bytes are too few for a ciphertext", "too short for a ciphertext"),
        (b"\x00" + payload[1:], "ciphertext version 0 is unknown", "no ciphertext of version 1"),
        (b"\x02" + payload[1:], "ciphertext version 2 is unknown", "no ciphertext of version 1"),
        (payload[:1] + bytes(4) + payload[5:], "no key with id 00000000 is held", "no key with its id is held"),
        (payload[:-1] + bytes([payload[-1] ^ 1]), "the ciphertext was altered", "altered, or of another channel"),
    ):
        with pytest.raises(DecryptionError, match=text) as caught:
            encryption.decrypt(refused)
        assert caught.value.reason == reason


def test_keys_are_never_shown_copied_out_or_pickled(cipher: Cipher) -> None:
    key = cipher.generate_key()
    encryption = cipher([key]).bind("room")
    for text in (repr(encryption), str(encryption), f"{encryption}"):
        assert "room" in text
        assert key.hex() not in text
        assert repr(key) not in text
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(encryption)
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.deepcopy(encryption)


def test_keys_come_from_a_file(cipher: Cipher, tmp_path: Path) -> None:
    first, second = cipher.generate_key(), cipher.generate_key()
    path = tmp_path / "keys"
    path.write_text(f"# the present key\n{first.hex()}\n\n  {second.hex().upper()}  \n")
    both = cipher.from_key_file(path)
    assert cipher(first).decrypt(both.encrypt(b"content")) == b"content"
    assert both.decrypt(cipher(second).encrypt(b"content")) == b"content"
    path.write_bytes(first)
    assert cipher(first).decrypt(cipher.from_key_file(path).encrypt(b"content")) == b"content"


def test_a_key_file_is_written_for_its_owner_only_and_never_replaced(cipher: Cipher, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    encryption = cipher([cipher.generate_key(), cipher.generate_key()])
    encryption.write_key_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert cipher.from_key_file(path).decrypt(encryption.encrypt(b"content")) == b"content"
    with pytest.raises(ConfigError, match="cannot be written: File exists"):
        encryption.write_key_file(path)


def test_a_key_file_is_durable_or_not_there(cipher: Cipher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    encryption = cipher(cipher.generate_key())
    fsync = os.fsync
    fails: list[BaseException] = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()]
    synced = []

    def sync(descriptor: int) -> None:
        if fails:
            raise fails.pop(0)
        synced.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        encryption.write_key_file(path)
    assert not path.exists()
    with pytest.raises(KeyboardInterrupt):
        encryption.write_key_file(path)
    assert not path.exists()
    encryption.write_key_file(path)
    # All of it, and its name.
    assert synced == [(each.stat().st_ino, each.stat().st_size) for each in (path, tmp_path)]


def test_a_bad_key_file_is_named_and_never_quoted(cipher: Cipher, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key = cipher.generate_key().hex()
    for content, complaint in [
        ("secret" * 20, "line 1: not a key"),
        (f"{key}\n{key[:-2]}\n", "line 2: 31 bytes"),
        ("# nothing\n", f"key file '{path}' holds no key: write one into it"),
        ("\u00e9" * 64, "line 1: not a key"),
    ]:
        path.write_text(content)
        with pytest.raises(ConfigError, match=complaint) as caught:
            cipher.from_key_file(path)
        assert "secret" not in str(caught.value)
        assert key[:16] not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        cipher.from_key_file(tmp_path / "absent")


def test_keys_come_from_an_environment_variable(cipher: Cipher, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (cipher.generate_key() for _ in range(3))
    monkeypatch.setenv("KEYS", f" {first.hex()},{second.hex().upper()}\n{third.hex()}, ")
    all_three = cipher.from_environment("KEYS")
    assert cipher(first).decrypt(all_three.encrypt(b"content")) == b"content"
    for key in (second, third):
        assert all_three.decrypt(cipher(key).encrypt(b"content")) == b"content"
    for content, complaint in (
        (", ", "the environment variable KEYS of an executor holds no key: set it to the keys' digits"),
        ("secret" * 20, "the environment variable KEYS of an executor holds something that is no key: each is 64 hex"),
        (
            first.hex()[2:],
            "the environment variable KEYS of an executor holds something that is no key: each is 64 hex",
        ),
    ):
        monkeypatch.setenv("KEYS", content)
        with pytest.raises(ConfigError, match=complaint) as caught:
            cipher.from_environment("KEYS", place=" of an executor")
        assert "secret" not in str(caught.value)


WITHOUT_LIBRARY = """
import sys
sys.modules["cryptography"] = None
import shardwire.encryption as encryption
from shardwire.errors import ConfigError
try:
    getattr(encryption, sys.argv[1])([bytes(32)])
except ConfigError as error:
    print(error)
"""


def test_without_the_library_the_remedy_is_named(cipher: Cipher) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARY, cipher.__name__], capture_output=True, text=True, check=True
    )
    assert run.stdout == (f"{cipher.__name__} needs the library 'cryptography': pip install 'shardwire[crypto]'\n")


def test_one_whose_keys_were_refused_can_be_shown(cipher: Cipher) -> None:
    refused = object.__new__(cipher)
    for keys in ([], [b"short"], 7, [bytes(32), bytes(32)]):
        with pytest.raises((ConfigError, TypeError)):
            refused.__init__(keys)  # type: ignore[misc]
        assert repr(refused) == f"{cipher.__name__}(no keys)"


def test_one_without_its_library_can_be_shown(cipher: Cipher, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(key: bytes) -> NoReturn:
        raise MissingLibraryError("the library is missing")

    monkeypatch.setattr(cipher, "_make_cipher", staticmethod(fail))
    refused = object.__new__(cipher)
    with pytest.raises(MissingLibraryError):
        refused.__init__(bytes(32))  # type: ignore[misc]
    assert repr(refused) == f"{cipher.__name__}(no keys)"
