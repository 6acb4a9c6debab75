"""`shardwire reconstruct`: options, what it prints, exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.rows import CONFIG, payload_of, sent

from shardwire.archive import ArchiveSummary, summarize
from shardwire.cli.app import run
from shardwire.encryption import AesGcmEncryption
from shardwire.segmentation import segment

SIZE = ("--segment-size", "640")


def write(path: Path, rows: list[bytes]) -> str:
    pq.write_table(pa.table({"payload": pa.array(rows, pa.binary())}), path)
    return str(path)


def test_an_encrypted_archive_with_losses(tmp_path: Path, capsys: Any) -> None:
    encryption = AesGcmEncryption([bytes(range(32))])
    encryption.write_key_file(tmp_path / "channel.key")
    bound = encryption.bind("room")
    payloads = [payload_of(number, 5_000) for number in range(3)]
    rows = []
    for number, payload in enumerate(payloads):
        lost = (0, 2, 6)[number]
        rows += [bound.encrypt(sent(f"{number:032x}", n, part)) for n, part in enumerate(segment(payload, CONFIG))][
            lost:
        ]
    archive = write(tmp_path / "archive.parquet", [*rows, b"noise"])
    options = ("-u", "decrypt", "-u", "sds", "--key-file", str(tmp_path / "channel.key"), "--channel-id", "room")
    arguments = ["reconstruct", archive, "-o", str(tmp_path / "out"), *options, "--cipher", "aes-256-gcm", *SIZE]
    assert run(arguments) == 1
    told = {line[:12].strip(): line[12:].strip() for line in capsys.readouterr().out.splitlines()}
    assert [told[status] for status in ("complete", "recovered", "incomplete", "invalid")] == ["1", "1", "1", "0"]
    assert told["no segment"] == "1  cannot be decrypted: too short for a ciphertext"
    found = {row["status"]: row["payload"] for row in pq.read_table(tmp_path / "out").to_pylist()}
    assert (found["complete"], found["recovered"]) == (payloads[0], payloads[1])
    # Again: the output is there, and is replaced only when that is asked for.
    assert run(arguments) == 2
    assert "exists: give another one, or pass --overwrite" in capsys.readouterr().err
    assert run([*arguments, "--overwrite"]) == 1


def test_all_there_gives_0(tmp_path: Path, capsys: Any) -> None:
    archive = write(tmp_path / "archive.parquet", segment(payload_of(1, 5_000), CONFIG))
    assert run(["reconstruct", archive, "-o", str(tmp_path / "out"), "--lengths-only", *SIZE]) == 0
    [row] = pq.read_table(tmp_path / "out").to_pylist()
    assert (row["payload"], row["payload_length"]) == (None, 5_000)


def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: Any) -> None:
    archive = write(tmp_path / "archive.parquet", [b"x"])
    for options, reason in (
        (("--unwrap", "tls"), "--unwrap is 'tls': it must be one of waku, decrypt, sds, sds-nim"),
        (("--unwrap", "decrypt"), "--unwrap decrypt needs either --key-file or --key-env"),
        (("--key-env", "KEY", "--unwrap", "sds"), "--key-env is of --unwrap decrypt, which is missing: give that, too"),
        (("--channel-id", "room"), "--channel-id is of --unwrap decrypt, which is missing: give that, too"),
        (("--payload", "nothing"), "--payload names the column 'nothing': the archive has payload"),
        # No executor is at work here.
        (("--unwrap", "decrypt", "--key-env", "NO_SUCH_KEY"), ": the environment variable NO_SUCH_KEY holds no key"),
        (("--by", "x", "y"), "no file or directory 'y': correct it; where it is meant for --by, give that for each: "),
        (("--by", "x", "--unwrap", "waku", "sds"), "give that for each: --unwrap waku --unwrap sds\n"),
    ):
        for command in ("reconstruct", "report"):
            assert run([command, archive, "-o", str(tmp_path / "out"), *options]) == 2
            [line] = capsys.readouterr().err.splitlines(keepends=True)
            assert reason in line
    assert run(["reconstruct", str(tmp_path / "nothing"), "-o", str(tmp_path / "out")]) == 2
    assert "there is no file or directory" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere /proc is no file system of its own")
def test_an_output_that_cannot_be_made_is_told_by_its_own_name(tmp_path: Path, capsys: Any) -> None:
    archive = write(tmp_path / "archive.parquet", [b"x"])
    # Nobody makes a directory there, the superuser neither.
    # 1 would say that messages are missing.
    assert run(["reconstruct", archive, "-o", "/proc/out"]) == 2
    assert capsys.readouterr().err.startswith("shardwire: /proc/out: ")
    # Of a page that is so before the archive is read, whatever reads it.
    for options in ((), ("--spark", "local[1]")):
        assert run(["report", archive, "-o", "/proc/out", "--payload", "nothing", *options]) == 2
        assert capsys.readouterr().err.startswith("shardwire: /proc/out: ")
        assert run(["report", archive, "-o", str(tmp_path), *options]) == 2
        assert f"--output is '{tmp_path}', a directory: give a file" in capsys.readouterr().err


def test_what_is_put_aside_for_a_page_is_not_put_among_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories: list[Path | None] = []

    def spied(*given: Any, directory: Path | None, **options: Any) -> ArchiveSummary:
        directories.append(directory)
        return summarize(*given, directory=directory, **options)

    monkeypatch.setattr("shardwire.archive.summarize", spied)
    archive = write(tmp_path / "archive.parquet", segment(payload_of(1, 5_000), CONFIG))
    for output in (os.devnull, str(tmp_path / "report.html")):
        assert run(["report", archive, *SIZE, "-o", output]) == 0
    assert directories == [None, tmp_path]
