"""Nodes out of URLs: which kind of network, where, and with which options."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from shardwire.config.checks import check_text
from shardwire.errors import ConfigError
from shardwire.node.clock import Clock
from shardwire.node.protocol import NodeConfig
from shardwire.node.transport import TransportNode

NODE_SCHEMES: Mapping[str, str] = MappingProxyType(
    {
        "waku+http": "REST interface of a Waku node",
        "waku+https": "the same with TLS",
        "nats": "NATS server",
        "tls": "NATS server with TLS",
        "mqtt": "MQTT 5 broker",
        "mqtts": "the same with TLS",
        "udp": "datagrams, to peers or to a multicast group",
    }
)
"""What the URL of a node may begin with, and what each stands for."""

_FLAGS = {"true": True, "false": False}
# Where those who follow a scheme's habit elsewhere find it here.
_MEANT = {
    "http": "a Waku node is waku+http://",
    "https": "a Waku node is waku+https://",
    "waku": "a Waku node is waku+http://",
    "nats+tls": "a NATS server with TLS is tls://",
    "mqtt+tls": "an MQTT broker with TLS is mqtts://",
    "ssl": "an MQTT broker with TLS is mqtts://, a NATS server tls://",
    "tcp": "an MQTT broker is mqtt://, a NATS server nats://",
    "ws": "websockets are not supported",
    "wss": "websockets are not supported",
}

Reader = Callable[[str, str], Any]


def _text(name: str, value: str) -> str:
    if not value:
        raise ConfigError(f"{name} is empty: give it a value or leave it out")
    return value


def _integer(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"{name} is {value!r}: it must be an integer") from None


def _flag(name: str, value: str) -> bool:
    if value not in _FLAGS:
        raise ConfigError(f"{name} is {value!r}: it must be true or false")
    return _FLAGS[value]


def _stream(name: str, value: str) -> str | None:
    return value or None


def _peers(name: str, value: str) -> tuple[str, ...]:
    return tuple(peer for peer in value.split(",") if peer)


_TLS = {"tls_ca": _text, "tls_certificate": _text, "tls_key": _text}
_WAKU: Mapping[str, Reader] = {
    "store_url": _text,
    "store_peer": _text,
    "use_store": _flag,
    "store_timeout_ms": _integer,
    "light": _flag,
    "cluster_id": _integer,
    "num_shards_in_cluster": _integer,
}
_NATS: Mapping[str, Reader] = {"credentials": _text, "subject_prefix": _text, "stream": _stream}
_MQTT: Mapping[str, Reader] = {"client_id": _text, "session_expiry_ms": _integer, "topic_prefix": _text}
_UDP: Mapping[str, Reader] = {
    "peers": _peers,
    "accept_peers": _flag,
    "interface": _text,
    "ttl": _integer,
    "datagram_bytes_max": _integer,
}
_OPTIONS: Mapping[str, Mapping[str, Reader]] = {
    "waku+http": _WAKU,
    "waku+https": {**_WAKU, **_TLS},
    "nats": {**_NATS, **_TLS},
    "tls": {**_NATS, **_TLS},
    "mqtt": _MQTT,
    "mqtts": {**_MQTT, **_TLS},
    "udp": _UDP,
}


def create_node(
    url: str,
    *,
    credentials: str | None = None,
    participant: str | None = None,
    config: NodeConfig | None = None,
    clock: Clock | None = None,
) -> TransportNode:
    """Makes the node that a URL names; it is not started.

    The URL is `scheme://[user[:password]@]host[:port][?option=value&option=value]`, with one of `NODE_SCHEMES`. Options
    are the arguments of the node's class that a text can give, by their names, and with TLS `tls_ca`,
    `tls_certificate` and `tls_key`, each the path of a PEM file.

    Args:
        url: What names the node. A Waku node's may have a path.
        credentials: `user:password`, or a token of NATS, instead of one in the URL.
        participant: Names the participant to a network that keeps something for it by name, as an MQTT broker does
            (`client_id`), where the URL does not. Two that run at the same time must not share it.
        config: Configuration of the node.
        clock: Both times; None for those of the running event loop.

    Raises:
        ConfigError: The URL, one of its options or a file that it names is wrong, or the library of that network is
            missing: the error names the extra that brings it. It tells nothing of user and password.
    """
    check_text("credentials", credentials, or_none=True)
    check_text("participant", participant, or_none=True)
    scheme, address, options = _take_apart(url)
    tls = _tls_context(options)
    if scheme.startswith("waku+"):
        from shardwire.node.rest import WakuRestNode

        plain = _with_credentials(address.removeprefix("waku+"), credentials)
        return WakuRestNode(plain, **options, tls=tls, config=config, clock=clock)
    if scheme in ("nats", "tls"):
        from shardwire.node.nats import NatsNode

        user, colon, password = (credentials or "").partition(":")
        login = {"user": user, "password": password} if colon else {"token": credentials}
        return NatsNode(address, **options, **login, tls=tls, config=config, clock=clock)
    if scheme in ("mqtt", "mqtts"):
        from shardwire.node.mqtt import MqttNode

        name, colon, secret = (credentials or "").partition(":")
        options.setdefault("client_id", participant)
        return MqttNode(
            address,
            **options,
            user=name or None,
            password=secret if colon else None,
            tls=tls,
            config=config,
            clock=clock,
        )
    from shardwire.node.udp import UdpNode

    if credentials is not None:
        raise ConfigError("credentials are given for udp://: there is nobody to show them to, use an Encryption")
    return UdpNode(address, **options, config=config, clock=clock)


def _take_apart(url: str) -> tuple[str, str, dict[str, Any]]:
    """Scheme, URL without options, and the options as they are read."""
    if not isinstance(url, str):
        raise ConfigError(f"url is a {type(url).__name__}: it must be a text such as nats://localhost")
    # Whatever stands before the last @ may be a secret.
    _, hides, shown = url.rpartition("@")
    told = f"url {'ends in' if hides else 'is'} {shown!r}"
    scheme, separator, _ = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in NODE_SCHEMES:
        known = ", ".join(f"{name}://" for name in NODE_SCHEMES)
        meant = f" ({_MEANT[scheme]})" if separator and scheme in _MEANT else ""
        raise ConfigError(f"{told}: it must begin with one of {known}{meant}")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(f"{told}: it is no URL") from None
    if "@" in parts.path + parts.query + parts.fragment:
        # A password with such a character would be read as an option, and told as a wrong one.
        raise ConfigError(f"{told}: in user, password and options write / ? # @ as %2F %3F %23 %40")
    readers = _OPTIONS[scheme]
    options: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in readers:
            raise ConfigError(f"url has the option {name!r}: {scheme}:// takes {', '.join(readers)}")
        if name in options:
            raise ConfigError(f"url has the option {name!r} twice: give it once")
        options[name] = readers[name](f"url: {name}", value)
    return scheme, parts._replace(scheme=scheme, query="").geturl(), options


def _with_credentials(url: str, credentials: str | None) -> str:
    if credentials is None:
        return url
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigError("url holds credentials, and others are given beside it: keep one of them")
    user, _, password = credentials.partition(":")
    return parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}").geturl()


def _tls_context(options: dict[str, Any]) -> ssl.SSLContext | None:
    """What the TLS options, which it takes out, say; None without any."""
    ca, certificate, key = (options.pop(f"tls_{name}", None) for name in ("ca", "certificate", "key"))
    if ca is None and certificate is None and key is None:
        return None
    if key is not None and certificate is None:
        raise ConfigError("url has tls_key without tls_certificate: give both")
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigError(f"url: tls_ca {ca!r} cannot be read: {_reason(error, 'no certificate in it')}") from None
    if certificate is not None:
        try:
            # Nobody is there to be asked for a password.
            context.load_cert_chain(certificate, key, password=lambda: "")
        except OSError as error:
            reason = _reason(error, "no certificate, or no key without a password, in it")
            raise ConfigError(f"url: tls_certificate {certificate!r} or its key cannot be read: {reason}") from None
    return context


def _reason(error: OSError, unreadable: str) -> str:
    return unreadable if isinstance(error, ssl.SSLError) else error.strerror or type(error).__name__
