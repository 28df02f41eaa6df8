"""Errors of the pipeline.

PipelineError
├── CorpusError      a corpus, or what one is to be made of, cannot be read: where
│   └── ServiceError     a service that was asked does not answer, or lets nobody in
├── MeasureError     a module could not be imported and measured: why
├── PlanError        the planner's input makes no plan
├── QueueError       work cannot be shared by way of the queue: why, and what helps
├── CaptureError     a checkpoint could not be captured: why
├── PublishError     a generation cannot be put into a bucket, or a bucket does not allow it: why
│   └── LostRaceError    another publisher was first; nothing has changed
├── NotifyError      a fleet could not be told of what was published; it looks by itself
└── OutputError      the result cannot be written where it was asked for
"""


class PipelineError(Exception):
    """Base of everything the pipeline raises on purpose; the message is for the operator."""


class CorpusError(PipelineError):
    """A corpus, or what one is to be made of, cannot be read; the message names the place."""


class ServiceError(CorpusError):
    """A service did not answer, or not in a way that can be used; asking again later may help.

    ``retry_after_s`` is how long it asked to be left alone, where it said so. Messages carry no
    credentials and no address.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class MeasureError(PipelineError):
    """A module could not be imported and measured; the message says why."""


class PlanError(PipelineError):
    """The planner was asked for something it cannot do."""


class QueueError(PipelineError):
    """Work cannot be shared by way of the queue; the message says why and what helps."""


class CaptureError(PipelineError):
    """A checkpoint could not be captured; nothing of it is left."""


class PublishError(PipelineError):
    """What is current in the bucket is what was current before; the message says why."""


class LostRaceError(PublishError):
    """Another publisher changed the pointer meanwhile; the message names the winner."""


class NotifyError(PipelineError):
    """A fleet could not be told to look at its bucket; the message says why."""


class OutputError(PipelineError):
    """The output folder holds something else, or cannot be written."""
