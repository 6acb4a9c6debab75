"""`create_node`: the kinds of networks by their URLs, options, credentials that show nowhere, errors by name."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from certificates import write_certificate
from live_nodes import real_time
from live_servers import Mosquitto, NatsServer, free_port

from shardwire.errors import ConfigError, NodeError
from shardwire.node import (
    NODE_SCHEMES,
    MqttNode,
    NatsNode,
    NodeConfig,
    UdpNode,
    WakuRestNode,
    create_node,
)

SECRET = "ope%2Fsesame"
# What must stand nowhere.
HIDDEN = ("ope/sesame", "ope%2Fsesame", "sesame")


@pytest.mark.parametrize(
    ("url", "kind", "name"),
    [
        ("waku+http://localhost:8645", WakuRestNode, "Waku node http://localhost:8645"),
        ("waku+https://node.example/rest/", WakuRestNode, "Waku node https://node.example/rest"),
        ("WAKU+HTTP://localhost:8645", WakuRestNode, "Waku node http://localhost:8645"),
        ("nats://localhost", NatsNode, "nats://localhost:4222"),
        ("tls://[::1]:4333", NatsNode, "tls://[::1]:4333"),
        ("mqtt://localhost", MqttNode, "mqtt://localhost:1883"),
        ("mqtts://localhost", MqttNode, "mqtts://localhost:8883"),
        ("udp://0.0.0.0:0?peers=127.0.0.1:9,[::1]:10", UdpNode, "udp://0.0.0.0:0"),
        ("udp://239.255.70.1?interface=127.0.0.1&ttl=2", UdpNode, "udp://239.255.70.1:9700"),
    ],
)
def test_a_scheme_names_a_kind(url: str, kind: type, name: str) -> None:
    config = NodeConfig(num_shards_in_cluster=4)
    node = create_node(url, config=config)
    assert type(node) is kind
    assert repr(node) == f"<{kind.__name__} {name}>"
    assert node.config == config


def test_every_scheme_is_tried() -> None:
    for scheme in NODE_SCHEMES:
        assert create_node(f"{scheme}://localhost:9").config == NodeConfig()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:4222", "it must begin with one of waku+http://, waku+https://, nats://"),
        ("http://localhost:8645", "a Waku node is waku+http://"),
        ("ws://localhost", "websockets are not supported"),
        ("nats://", "it must name a host"),
        ("nats://localhost:port", "its port is none"),
        ("nats://[::1", "it is no URL"),
        ("nats://localhost/path", "nothing may follow the port"),
        ("nats://localhost?streem=a", "url has the option 'streem': nats:// takes credentials, subject_prefix, stream"),
        ("nats://localhost?stream=a&stream=b", "the option 'stream' twice"),
        ("nats://localhost?stream=a.b", "stream is 'a.b'"),
        ("nats://localhost?subject_prefix=", "url: subject_prefix is empty"),
        ("mqtt://localhost?session_expiry_ms=soon", "url: session_expiry_ms is 'soon': it must be an integer"),
        ("mqtt://localhost?session_expiry_ms=-1", "session_expiry_ms is -1"),
        ("mqtt://localhost?tls_ca=a.pem", "url has the option 'tls_ca': mqtt:// takes client_id"),
        ("udp://localhost?accept_peers=perhaps", "url: accept_peers is 'perhaps': it must be true or false"),
        ("udp://localhost?peers=a:port", "its port is none"),
        ("waku+http://localhost?light=1", "url: light is '1'"),
        ("waku+http://localhost?store_peer=me", "store_peer is 'me'"),
        ("waku+http:///", "name a host"),
        ("tls://localhost?tls_ca=/nowhere/ca.pem", "tls_ca '/nowhere/ca.pem' cannot be read: No such file"),
        ("tls://localhost?tls_key=/nowhere/key.pem", "tls_key without tls_certificate"),
        ("tls://localhost?tls_certificate=/nowhere/a.pem", "cannot be read: No such file"),
    ],
)
def test_what_is_wrong_is_told_by_name(url: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        create_node(url)
    assert told in str(raised.value)


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("nothing of the kind")
    certificate, _ = write_certificate(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: no certificate in it"):
        create_node(f"mqtts://localhost?tls_ca={tmp_path}/text")
    with pytest.raises(ConfigError, match="no certificate, or no key without a password, in it"):
        create_node(f"mqtts://localhost?tls_certificate={certificate}&tls_key={tmp_path}/text")


def test_something_else_than_a_text() -> None:
    with pytest.raises(ConfigError, match="url is a NoneType"):
        create_node(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", ["waku+http", "nats", "mqtt"])
def test_credentials_show_nowhere(scheme: str) -> None:
    nodes = [
        create_node(f"{scheme}://name:{SECRET}@localhost:9"),
        create_node(f"{scheme}://localhost:9", credentials="name:ope/sesame"),
    ]
    for node in nodes:
        assert not any(part in repr(node) or part in str(vars(node)) for part in HIDDEN)
    for wrong in ("?nothing=1", "/a path#x", ":port"):
        with pytest.raises(ConfigError) as raised:
            create_node(f"{scheme}://name:{SECRET}@localhost{wrong}")
        assert not any(part in str(raised.value) for part in HIDDEN)
    with pytest.raises(ConfigError) as raised:
        create_node(f"{scheme}://name:{SECRET}@localhost:9", credentials="zulu:tango")
    assert not any(part in str(raised.value) for part in (*HIDDEN, "zulu", "tango"))


@pytest.mark.parametrize("character", "/?#@:")
@pytest.mark.parametrize("scheme", NODE_SCHEMES)
def test_a_password_with_a_bare_special_character_is_refused_or_read_but_never_told(
    scheme: str, character: str
) -> None:
    told = ""
    try:
        create_node(f"{scheme}://name:zulu{character}tango=x@localhost:9")
    except ConfigError as error:
        told = str(error)
    assert "zulu" not in told
    assert "tango" not in told


def test_nobody_is_shown_credentials_by_udp() -> None:
    with pytest.raises(ConfigError, match="nobody to show them to"):
        create_node("udp://localhost:0", credentials="a:b")


def test_a_participant_names_itself_to_a_broker() -> None:
    def client_id(node: object) -> str:
        return node._mqtt._login.client_id  # type: ignore[attr-defined, no-any-return]

    assert client_id(create_node("mqtt://localhost", participant="alice")) == "alice"
    assert client_id(create_node("mqtt://localhost?client_id=bob", participant="alice")) == "bob"
    assert client_id(create_node("mqtt://localhost")) != client_id(create_node("mqtt://localhost"))
    # Others have no such names.
    create_node("nats://localhost", participant="alice")


@pytest.mark.parametrize(
    ("library", "url", "extra"),
    [("nats", "nats://localhost", "nats"), ("paho", "mqtt://localhost", "mqtt"), ("aiohttp", "waku+http://a", "rest")],
)
def test_a_missing_library_names_its_extra(library: str, url: str, extra: str) -> None:
    program = (
        "import importlib.util as u, sys\n"
        f"sys.modules[{library!r}] = None\n"
        f"find = u.find_spec; u.find_spec = lambda name, *rest: None if name == {library!r} else find(name, *rest)\n"
        "from shardwire.node import create_node\n"
        f"try: create_node({url!r})\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("MissingLibraryError ")
    assert f"pip install 'shardwire[{extra}]'" in answer.stdout


@real_time
async def test_tls_and_login_by_url_against_real_servers(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n'
    users = 'authorization { user: "name", password: "ope/sesame" }\n'
    with NatsServer(tmp_path / "nats", settings=tls + users) as server:
        place = f"127.0.0.1:{server.port}"
        node = create_node(f"tls://name:{SECRET}@{place}?tls_ca={certificate}&stream=")
        await node.start()
        assert isinstance(node, NatsNode)
        assert (await node.status()).tls
        await node.stop()
        node = create_node(f"nats://{place}?tls_ca={certificate}", credentials="name:ope/sesame")
        await node.start()
        await node.stop()
        with pytest.raises(NodeError, match="certificate is not trusted"):
            await create_node(f"tls://{place}").start()
    listener = f"allow_anonymous true\ncertfile {certificate}\nkeyfile {key}\n"
    with Mosquitto(tmp_path / "mqtt", listener=listener) as broker:
        node = create_node(f"mqtts://127.0.0.1:{broker.port}?tls_ca={certificate}")
        await node.start()
        await node.stop()


@real_time
async def test_what_nodes_tell_of_themselves(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", jetstream=True) as server:
        node = create_node(server.url)
        assert isinstance(node, NatsNode)
        with pytest.raises(NodeError, match="not started"):
            await node.status()
        await node.start()
        status = await node.status()
        assert status.jetstream
        assert status.stream is not None
        assert status.stream.name == "shardwire"
        assert status.stream.clock_ahead_ms is not None
        assert abs(status.stream.clock_ahead_ms) < 10_000
        assert status.payload_bytes_max == 1 << 20
        await node.stop()
    with NatsServer(tmp_path / "plain") as server:
        node = create_node(server.url)
        assert isinstance(node, NatsNode)
        await node.start()
        status = await node.status()
        assert (status.jetstream, status.stream) == (False, None)
        assert "JetStream" in status.no_stream_reason
        await node.stop()
    with Mosquitto(tmp_path / "mqtt", settings="max_packet_size 100000") as broker:
        mqtt = create_node(broker.url, participant="alice")
        assert isinstance(mqtt, MqttNode)
        await mqtt.start()
        said = mqtt.status()
        assert (said.client_id, said.packet_bytes_max, said.session_expiry_ms) == ("alice", 100_000, 300_000)
        await mqtt.stop()
    ports = free_port(), free_port(), free_port()
    alice = create_node(f"udp://127.0.0.1:{ports[0]}?peers=127.0.0.1:{ports[1]},127.0.0.1:{ports[2]}")
    bob = create_node(f"udp://127.0.0.1:{ports[1]}")
    assert isinstance(alice, UdpNode)
    await alice.start()
    await bob.start()
    async with asyncio.timeout(30):
        while not alice.status().neighbours:  # noqa: ASYNC110 - nobody sets an event for it
            await asyncio.sleep(0.05)
    told = alice.status()
    assert [each.address for each in told.neighbours] == [f"127.0.0.1:{ports[1]}"]
    assert told.peers_missing == (f"127.0.0.1:{ports[2]}",)
    await alice.stop()
    await bob.stop()
