"""A node on the REST interface of a Waku node: go-waku, nwaku, logos-delivery."""

from __future__ import annotations

from shardwire.node.rest.node import WakuRestNode
from shardwire.node.rest.transport import WakuNodeStatus
from shardwire.node.rest.waku_api import WakuHealth, WakuNodeInfo, WakuPeer

__all__ = ["WakuHealth", "WakuNodeInfo", "WakuNodeStatus", "WakuPeer", "WakuRestNode"]
