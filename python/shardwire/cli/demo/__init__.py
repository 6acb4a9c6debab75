"""`shardwire demo`: a real file through a lossy network, archived by a listener and reconstructed on Spark."""

from __future__ import annotations

from shardwire.cli.demo.run import run_demo

__all__ = ["run_demo"]
