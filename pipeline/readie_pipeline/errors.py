"""Errors of the pipeline.

PipelineError
├── MeasureError     a module could not be imported and measured: why
├── PlanError        the planner's input makes no plan
├── CaptureError     a checkpoint could not be captured: why
└── OutputError      the result cannot be written where it was asked for
"""


class PipelineError(Exception):
    """Base of everything the pipeline raises on purpose; the message is for the operator."""


class CorpusError(PipelineError):
    """A corpus, or what one is to be made of, cannot be read; the message names the place."""


class MeasureError(PipelineError):
    """A module could not be imported and measured; the message says why."""


class PlanError(PipelineError):
    """The planner was asked for something it cannot do."""


class CaptureError(PipelineError):
    """A checkpoint could not be captured; nothing of it is left."""


class OutputError(PipelineError):
    """The output folder holds something else, or cannot be written."""
