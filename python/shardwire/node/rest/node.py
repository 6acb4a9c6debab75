"""`WakuRestNode`: a node on the REST interface of go-waku, nwaku or logos-delivery."""

from __future__ import annotations

import ssl
from dataclasses import replace

from shardwire.config.checks import check_bool, check_integer, check_kind
from shardwire.errors import ConfigError
from shardwire.node.clock import Clock
from shardwire.node.protocol import NodeConfig
from shardwire.node.rest.http import AiohttpClient, Http, RestAddress
from shardwire.node.rest.rest_store import StoreSettings
from shardwire.node.rest.transport import RestTransport, WakuNodeStatus
from shardwire.node.transport import TransportNode


class WakuRestNode(TransportNode):
    """A Waku node, used by its REST interface: relay, or filter and lightpush on one without relay; store v3.

    Which dialect the node speaks, whether it has a relay and which of its peers is a store it finds out by itself. One
    Waku node serves one participant: whoever polls it takes what it brought.

    Args:
        url: Address of the REST interface, as `http://127.0.0.1:8645`; may hold a name and a password for basic
            authentication, which appear nowhere else.
        store_url: Of another node, which is asked for what is stored; None for the same one.
        store_peer: Multiaddress of the store that the node asks; None for one among the node's peers.
        use_store: Whether a store is asked at all.
        store_timeout_ms: For one answer of the store.
        cluster_id: Cluster of the node; None for that of `config`.
        num_shards_in_cluster: Shards of the cluster; None for those of `config`.
        light: Whether the node is used by filter and lightpush; None to find out whether it has a relay.
        tls: How the certificates of `https` addresses are checked; None for the system's authorities.
        config: Configuration of the node.
        clock: Both times; None for those of the running event loop.

    Raises:
        ConfigError: An argument is wrong, or the library aiohttp is missing.
    """

    def __init__(
        self,
        url: str,
        *,
        store_url: str | None = None,
        store_peer: str | None = None,
        use_store: bool = True,
        store_timeout_ms: int = 20_000,
        cluster_id: int | None = None,
        num_shards_in_cluster: int | None = None,
        light: bool | None = None,
        tls: ssl.SSLContext | None = None,
        config: NodeConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_kind("tls", tls, ssl.SSLContext)
        check_bool("use_store", use_store)
        check_bool("light", light, or_none=True)
        address = RestAddress.parse("url", url, tls)
        store_http: Http | None = None
        if store_url is not None:
            store_http = AiohttpClient(RestAddress.parse("store_url", store_url, tls))
        if store_peer is not None and not (isinstance(store_peer, str) and store_peer.startswith("/")):
            raise ConfigError(f"store_peer is {store_peer!r}: it must be a multiaddress, /ip4/.../tcp/.../p2p/...")
        check_integer("store_timeout_ms", store_timeout_ms, 1)
        settings = StoreSettings(use_store, store_http, store_peer, store_timeout_ms)
        self._rest = RestTransport(f"Waku node {address.url}", AiohttpClient(address), settings, light)
        super().__init__(self._rest, _configured(config, cluster_id, num_shards_in_cluster), clock=clock)

    async def status(self) -> WakuNodeStatus:
        """Asks the started node what it is and has: version, peers, store, shards, clock, health.

        Raises:
            NodeError: It is not started, or does not answer.
        """
        self._require_running("status")
        return await self._rest.status()


def _configured(config: NodeConfig | None, cluster_id: int | None, num_shards_in_cluster: int | None) -> NodeConfig:
    check_kind("config", config, NodeConfig)
    config = config or NodeConfig()
    if cluster_id is not None:
        config = replace(config, cluster_id=cluster_id)
    if num_shards_in_cluster is not None:
        config = replace(config, num_shards_in_cluster=num_shards_in_cluster)
    return config
