"""Channels over networks that exist: participants in processes of their own, real servers, and what goes wrong."""
