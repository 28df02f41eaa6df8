"""Adapters that every server shares: Redis, the object store, logging, metrics, settings."""
