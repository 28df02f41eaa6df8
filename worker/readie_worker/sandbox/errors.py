"""Errors of sandbox runtimes.

SandboxError
├── RuntimeUnavailableError    this machine cannot run it: what is missing, how to get it
├── CheckpointRefusedError     this checkpoint cannot be restored here: why
├── StartError                 a sandbox did not come up; nothing of it is left
└── SandboxGoneError           the sandbox has already ended
"""


class SandboxError(Exception):
    """Base of everything a runtime raises on purpose."""


class RuntimeUnavailableError(SandboxError):
    """The machine lacks something the runtime needs; the message says what and the remedy."""


class CheckpointRefusedError(SandboxError):
    """A checkpoint does not fit this worker; the message is the reason shown to operators."""


class StartError(SandboxError):
    """A sandbox did not come up in time or at all. Safe to try another start kind."""


class SandboxGoneError(SandboxError):
    """The sandbox ended before the operation."""
