from __future__ import annotations

import copy
import errno
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from shardwire.encryption import AesGcmEncryption, ChaCha20Poly1305Encryption, Encryption
from shardwire.errors import ConfigError, DecryptionError

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
    assert header[0] == 1
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
    ids = ["", "a", "b", "a\x00"]
    all_of_them = [unbound, *(unbound.bind(channel_id) for channel_id in ids)]
    for writer in all_of_them:
        payload = writer.encrypt(b"content")
        for reader in all_of_them:
            if reader is writer:
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
    ],
)
def test_wrong_keys_are_refused_at_once(cipher: Cipher, keys: list[bytes], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        cipher(keys)


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
    full, synced = [True], []

    def sync(descriptor: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        encryption.write_key_file(path)
    assert not path.exists()
    full.clear()
    encryption.write_key_file(path)
    assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]


def test_a_bad_key_file_is_named_and_never_quoted(cipher: Cipher, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key = cipher.generate_key().hex()
    for content, complaint in [
        ("secret" * 20, "line 1: not a key"),
        (f"{key}\n{key[:-2]}\n", "line 2: 31 bytes"),
        ("# nothing\n", "0 keys"),
        ("\u00e9" * 64, "line 1: not a key"),
    ]:
        path.write_text(content)
        with pytest.raises(ConfigError, match=complaint) as caught:
            cipher.from_key_file(path)
        assert "secret" not in str(caught.value)
        assert key[:16] not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        cipher.from_key_file(tmp_path / "absent")


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
