"""`shardwire demo`: a real file through a lossy network, archived by a listener and reconstructed on Spark."""

from __future__ import annotations

# Before anything of ours wants it: the demo needs more than that would ask for.
import pyarrow  # noqa: F401

from shardwire.cli.demo.run import run_demo

__all__ = ["run_demo"]
