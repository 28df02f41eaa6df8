"""Example workloads: what people's code imports, and how often together."""
