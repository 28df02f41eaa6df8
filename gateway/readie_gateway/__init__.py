"""The HTTP front: authenticates, prices checkpoints, queues calls and relays their events."""
