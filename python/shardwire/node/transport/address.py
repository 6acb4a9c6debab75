"""Where a server is, out of the URL that a user gives."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from shardwire.errors import ConfigError
from shardwire.quoting import os_reason, quoted


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server's URL, taken apart. Neither its text nor its repr holds the credentials.

    Attributes:
        scheme: In lower case.
        host: Name or address, an IPv6 address without its brackets.
        port: The port.
        user: Decoded; None where the URL has none.
        password: Decoded; None where the URL has none.
        query: What follows the question mark, each name once.
    """

    scheme: str
    host: str
    port: int
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host and port, as a URL writes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_server_url(
    what: str, url: str, ports: Mapping[str, int], *, queries: tuple[str, ...] = (), may_listen: bool = False
) -> ServerAddress:
    """Reads `scheme://[user[:password]@]host[:port][?name=value]`.

    Args:
        what: Names the argument in errors.
        url: The URL.
        ports: Schemes that may be, and the port of each where the URL has none.
        queries: Names that may follow a question mark.
        may_listen: Whether the URL may say where to listen: port 0 is a free one then.

    Raises:
        ConfigError: It is none of these; the text tells nothing of user and password.
    """
    schemes = " or ".join(f"{scheme}://" for scheme in ports)
    if not isinstance(url, str):
        raise ConfigError(f"{what} is a {type(url).__name__}: it must be a text that begins with {schemes}")
    shown = repr(url.rpartition("@")[2] if "@" in url else url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"{what} ends in {shown}: it is no URL, or its port is none") from None
    if parts.scheme not in ports:
        raise ConfigError(f"{what} ends in {shown}: it must begin with {schemes}")
    if not host:
        raise ConfigError(f"{what} ends in {shown}: it must name a host, as {parts.scheme}://localhost does")
    if parts.path.strip("/") or parts.fragment:
        raise ConfigError(f"{what} ends in {shown}: nothing may follow the port, write special characters as %..")
    check_host(what, host)
    if not may_listen:
        check_port(f"{what} ends in {shown}", port)
    query = tuple(parse_qsl(parts.query, keep_blank_values=True))
    names = [name for name, _ in query]
    if len(set(names)) < len(names) or not set(names) <= set(queries):
        known = f"only {', '.join(queries)}, once each" if queries else "nothing"
        raise ConfigError(f"{what} ends in {shown}: {known} may follow a question mark")
    return ServerAddress(
        parts.scheme,
        host,
        ports[parts.scheme] if port is None else port,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        query,
    )


def check_host(what: str, host: str) -> None:
    """Refuses a host that no resolver takes for a name.

    Raises:
        ConfigError: `host`, of the URL called `what`, is one.
    """
    try:
        host.encode("idna")
    except UnicodeError:
        pass
    else:
        if host.isprintable() and " " not in host:
            return
    raise ConfigError(
        f"{what} names the host {quoted(host)}: a name has 1 to 63 characters before, between and after its dots, and "
        "no spaces"
    )


def check_port(told: str, port: int | None) -> None:
    """Refuses port 0, which is no port to connect to.

    Raises:
        ConfigError: `port`, of the URL that `told` shows, is 0.
    """
    if port == 0:
        raise ConfigError(f"{told}: nobody is reached at port 0, it must be one from 1 to 65535")


def unreachable(error: OSError) -> str:
    """Why a server could not be connected to, and what to do about it where that is known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason}"
    text = str(error)
    # Of a name with several addresses asyncio tells of each in one text.
    if error.errno == errno.ECONNREFUSED or (error.errno is None and f"[Errno {errno.ECONNREFUSED}]" in text):
        return "nobody listens there: start the server, or correct host and port"
    if isinstance(error, socket.gaierror):
        return f"the host is not found ({error.strerror}): correct its name"
    return os_reason(error) if error.strerror else text or type(error).__name__
