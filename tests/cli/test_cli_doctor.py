"""`shardwire doctor`: what a node is and has, over real and scripted servers, and what to do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cli_terminals import Terminal, command
from live_nodes import real_time
from live_servers import Mosquitto, NatsServer, free_port
from stub_waku_node import StubNetwork, StubNode, served

from shardwire.cli.app import run
from shardwire.cli.network import doctor


async def examine(directory: Path, url: str, *options: str, code: int = 0, **settings: str) -> dict[str, Any]:
    """What it told, in a thread, as the stub server lives in our event loop."""
    answer = await asyncio.to_thread(
        command, directory, "doctor", url, "--json", "--timeout", "100", *options, settings=settings
    )
    assert answer.returncode == code, answer.stdout + answer.stderr
    assert answer.stderr == b""
    told: dict[str, Any] = json.loads(answer.stdout)
    assert told["usable"] is (code == 0)
    return told


@real_time
@pytest.mark.parametrize("dialect", ["go-waku", "logos-delivery"])
async def test_a_waku_node(tmp_path: Path, dialect: Any) -> None:
    node = StubNode(StubNetwork(), dialect=dialect)
    async with served(node) as address:
        told = await examine(tmp_path, f"waku+http://{address}", "--topic", "/app/1/notes/proto")
        facts = told["facts"]
        assert facts["node"] == f"Waku node http://{address}"
        assert facts["kind"] == "Waku node, used by relay"
        assert dialect in facts["version"]
        assert facts["cluster_id"] == 1
        assert facts["shards"] == "0, 1, 2, 3, 4, 5, 6, 7"
        assert facts["peers_relay"] == 1
        assert facts["peers_store"] >= 1
        assert facts["has_store"] is True
        assert facts["topic_lies_in"].startswith("/waku/2/rs/1/")
        assert "rln" in facts
        assert "clock_ahead_ms" in facts
        assert told["problems"] == []


@real_time
async def test_a_waku_node_that_lacks_something(tmp_path: Path) -> None:
    network = StubNetwork(has_store=False)
    node = StubNode(network, relay_peers=0)
    async with served(node) as address:
        told = await examine(tmp_path, f"waku+http://{address}", code=1)
        assert told["problems"] == ["no relay peer: connect the node to others, by --staticnode or by discovery"]
        assert any(note.startswith("no store is in reach: give the node one") for note in told["notes"])
        assert any(note.startswith("without a store participants") for note in told["notes"])
        # Shards that the node does not serve, and another cluster.
        url = f"waku+http://{address}?num_shards_in_cluster=1024"
        told = await examine(tmp_path, url, "--topic", "/app/1/notes/proto", code=1)
        assert any("of 1024, which the node does not serve: start it with --shard=148" in p for p in told["problems"])
        told = await examine(tmp_path, f"waku+http://{address}?cluster_id=7", code=1)
        assert "serves cluster 1, not 7: set cluster_id" in told["problems"][0]
        node.password = "sesame"
        told = await examine(tmp_path, f"waku+http://user:zulu@{address}", code=1)
        assert "name and password are missing or wrong" in told["problems"][0]
        assert "zulu" not in json.dumps(told)
        told = await examine(tmp_path, f"waku+http://{address}", code=1, SHARDWIRE_CREDENTIALS="user:sesame")
        assert told["facts"]["version"]
    rln = StubNode(StubNetwork(), dialect="logos-delivery", rln="SYNCHRONIZING")
    async with served(rln) as address:
        told = await examine(tmp_path, f"waku+http://{address}", code=1)
        assert told["facts"]["rln"] == "synchronizing"
        assert told["problems"][0].startswith("the RLN of the node is synchronizing: it refuses messages until")


@real_time
async def test_a_node_that_does_not_answer(tmp_path: Path) -> None:
    hanging = StubNode(StubNetwork(), fault="hang")
    async with served(hanging) as address:
        told = await examine(tmp_path, f"waku+http://{address}", "--timeout", "1", code=1)
        assert "did not answer within 1 s: see that it runs there" in told["problems"][0]


@pytest.mark.parametrize("scheme", ["waku+http", "nats", "mqtt"])
def test_a_dead_port(capsys: pytest.CaptureFixture[str], scheme: str) -> None:
    assert run(["doctor", f"{scheme}://zulu:tango@127.0.0.1:{free_port()}"]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    [problem] = [line for line in captured.out.splitlines() if line.startswith("problem: ")]
    assert any(cause in problem for cause in ("refused", "Connect call failed", "nobody listens there"))
    assert problem.endswith("credentials are right, and that no firewall is between")
    assert "channels can use it" not in captured.out
    assert "zulu" not in captured.out
    assert "tango" not in captured.out


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["http://localhost"], "URL: url is 'http://localhost': it must begin with"),
        ([], "Missing argument"),
        (["nats://localhost", "--topic", "notes"], "--topic: content topic"),
    ):
        assert run(["doctor", *arguments]) == 2
        assert expected in capsys.readouterr().err


def test_servers_and_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with NatsServer(tmp_path / "nats", jetstream=True) as server:
        assert run(["doctor", server.url]) == 0
        told = {line[:22].strip(): line[23:] for line in capsys.readouterr().out.splitlines()}
        assert (told["kind"], told["jetstream"], told["connection"]) == ("NATS server", "yes", "Connected")
        assert (told["stream"], told["stream messages"], told["has store"]) == ("shardwire", "0", "yes")
    with NatsServer(tmp_path / "plain") as server:
        assert run(["doctor", server.url]) == 0
        out = capsys.readouterr().out
        assert "note: no stream keeps messages: " in out
        assert out.endswith("channels can use it\n")
    with Mosquitto(tmp_path / "mqtt", settings="max_packet_size 100000") as broker:
        assert run(["doctor", broker.url, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)["facts"]
        assert (facts["kind"], facts["packet_bytes_max"], facts["has_store"]) == ("MQTT 5 broker", 100_000, False)


def test_neighbours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, away = free_port(), free_port()
    who = ("--channel", "c", "--topic", "/app/1/notes/proto", "--sender", "bob")
    with Terminal(tmp_path, "listen", "--node", f"udp://127.0.0.1:{here}", *who, "--json") as bob:
        bob.until_event("joined")
        assert run(["doctor", f"udp://127.0.0.1:0?peers=127.0.0.1:{here}", "--json", "--wait", "100"]) == 0
        assert json.loads(capsys.readouterr().out)["facts"]["neighbours"] == [f"127.0.0.1:{here}"]
        assert run(["doctor", f"udp://127.0.0.1:0?peers=127.0.0.1:{here},127.0.0.1:{away}", "--json"]) == 1
        problems = json.loads(capsys.readouterr().out)["problems"]
        assert any(problem.startswith(f"nothing is heard of 127.0.0.1:{away}: start it") for problem in problems)
    assert run(["doctor", "udp://127.0.0.1:0", "--wait", "0.1"]) == 0
    assert "note: nobody else is here so far" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ahead_ms", "told"),
    [(None, ""), (-10_000, ""), (10_000, ""), (-10_001, "10 s behind ours"), (10_001, "10 s ahead of ours")],
)
def test_a_clock_that_is_ahead_or_behind(ahead_ms: int | None, told: str) -> None:
    report = doctor.Report()
    doctor._look_at_clock(ahead_ms, report)
    assert bool(report.problems) is bool(told)
    assert all(told in problem for problem in report.problems)
