"""The options of a call: their names, types, defaults and limits, and what is refused in words."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from readie_gateway.errors import InvalidRequestError
from readie_gateway.sizes import parse_size
from readie_wire.keys import check_id

MIB = 1 << 20
DEFAULT_TIMEOUT_S = 3_600.0
MAX_FINDINGS = 16  # told of one body: a body can have thousands of fields that are not known
MAX_TIMEOUT_S = 7 * 86_400.0  # a call longer than a week outlives every deploy of its fleet
DEFAULT_QUEUE_TIMEOUT_S = 30.0  # long enough for a lone worker to restart
DEFAULT_MEMORY = 1 << 30
MIN_MEMORY = 32 * MIB  # below this an interpreter does not come up
DEFAULT_RESULT_TTL_S = 3_600.0
MAX_RESULT_TTL_S = 7 * 86_400.0
MAX_RETRIES = 10  # a call that loses so many sandboxes is what kills them
MAX_PRIORITY = 3  # an eight-fold share; more would starve the others
MAX_ENVIRONMENT_BYTES = 64 << 10  # names and values of `env` together; it travels with each call

Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "description": 'Bytes, or a text such as "512Mi" or "2G".',
        }
    ),
]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
VariableName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)
]

# What the format already names and this release cannot do: refused, so that no caller believes
# that it was done. Each sentence says what to do instead.
_NOT_YET = {
    "packages": "installing packages is not supported yet; build a generation that holds them",
}


class CallOptions(BaseModel):
    """What a caller may ask for. Unknown names are refused; times in seconds, memory in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    timeout: Seconds = Field(
        DEFAULT_TIMEOUT_S, le=MAX_TIMEOUT_S, description="How long the function may run."
    )
    queue_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        DEFAULT_QUEUE_TIMEOUT_S,
        le=MAX_TIMEOUT_S,
        description="How long the call may wait for a worker; 0: only for one that is free.",
    )
    memory: Size = Field(
        DEFAULT_MEMORY, ge=MIN_MEMORY, description="Memory that the sandbox starts with."
    )
    max_memory: Size | None = Field(
        None,
        ge=MIN_MEMORY,
        description="How far memory may grow; without it, to what the worker has.",
    )
    gpu: bool = Field(False, description="Run on a gpu worker.")
    gpu_memory: Size | None = Field(None, gt=0, description="GPU memory; makes it a GPU call.")
    max_gpu_memory: Size | None = Field(None, gt=0, description="As gpu_memory, its upper bound.")
    cpu: Seconds | None = Field(None, le=1024, description="CPUs; a fraction is fine.")
    network: Literal["sandbox", "none"] | None = Field(
        None, description='"none" cuts the call off; without it, what the worker offers.'
    )
    packages: list[str] = Field(default_factory=list, description="Not supported yet.")
    env: dict[VariableName, str] = Field(
        default_factory=dict, description="Environment variables of the call."
    )
    secrets: dict[VariableName, str] = Field(
        default_factory=dict,
        description="Environment variables that are sealed until they reach the sandbox.",
    )
    session: str | None = Field(
        None, description="Run in this session's sandbox, after the calls before it."
    )
    checkpoint_id: str | None = Field(
        None,
        max_length=260,
        description='Pin a checkpoint: "generation/checkpoint_3", or "checkpoint_3" of the current one.',
    )
    disable_optimized_execution: bool = Field(False, description="Always start cold.")
    retries: int = Field(
        0,
        ge=0,
        le=MAX_RETRIES,
        description="How often the call runs again when its sandbox or its worker is lost under it.",
    )
    idempotent: bool = Field(
        False, description="The call may run twice without harm, so it runs again once if need be."
    )
    priority: int = Field(
        0,
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="Each step halves what the call counts against its token's share of the workers.",
    )
    flavor: Literal["cpu", "gpu"] | None = Field(None, description="Run on workers of this flavor.")
    result_ttl: Seconds = Field(
        DEFAULT_RESULT_TTL_S, ge=1, le=MAX_RESULT_TTL_S, description="How long the result is kept."
    )
    stream_logs: bool = Field(True, description="Relay what the call prints while it runs.")

    @field_validator(*_NOT_YET)
    @classmethod
    def _refuse_what_is_not_there_yet(cls, value: Any, info: Any) -> Any:
        if value:
            raise ValueError(_NOT_YET[info.field_name])
        return value

    @field_validator("session")
    @classmethod
    def _require_an_id(cls, value: str | None) -> str | None:
        return None if value is None else check_id(value, "the session")

    @field_validator("env", "secrets")
    @classmethod
    def _bound_the_environment(cls, value: dict[str, str]) -> dict[str, str]:
        size = sum(len(name) + len(text.encode()) for name, text in value.items())
        if size > MAX_ENVIRONMENT_BYTES:
            raise ValueError(f"has {size} bytes, the limit is {MAX_ENVIRONMENT_BYTES}")
        if any("\0" in text for text in value.values()):
            raise ValueError("a value holds a NUL character, which no environment can")
        return value

    @field_validator("checkpoint_id")
    @classmethod
    def _require_a_name_of_one_or_two_parts(cls, value: str | None) -> str | None:
        if value is not None:
            generation, _, checkpoint = value.rpartition("/")
            check_id(checkpoint, "the checkpoint")
            if generation or value.startswith("/"):
                check_id(generation, "the generation")
        return value

    @model_validator(mode="after")
    def _require_options_that_agree(self) -> Self:
        if self.max_memory is not None and self.max_memory < self.memory:
            raise ValueError("max_memory: is less than memory; raise it or leave it out")
        if self.checkpoint_id is not None and self.disable_optimized_execution:
            raise ValueError(
                "checkpoint_id: cannot be pinned with disable_optimized_execution; choose one"
            )
        if self.session is not None and self.retries:
            raise ValueError(
                "retries: a call of a session cannot run again, for what the calls before it left in "
                "memory would be gone; leave it out"
            )
        if self.needs_gpu and self.flavor == "cpu":
            raise ValueError("flavor: a GPU call runs on a gpu worker only")
        return self

    @property
    def needs_gpu(self) -> bool:
        """A GPU call: asked for by name, or by any GPU memory budget."""
        return self.gpu or self.gpu_memory is not None or self.max_gpu_memory is not None


OPTION_NAMES = tuple(CallOptions.model_fields)
_DEFAULTS = CallOptions.model_validate({})


def parse_options(given: Mapping[str, Any]) -> CallOptions:
    """Validated options. Raises `InvalidRequestError` with the first wrong ``field`` by name."""
    if not given:
        return _DEFAULTS
    for name in given:
        if name not in CallOptions.model_fields:
            raise _unknown_option(name)
    try:
        return CallOptions.model_validate(given)
    except ValidationError as error:
        raise invalid_field(error, CallOptions, "options") from error


def invalid_field(
    error: ValidationError, model: type[BaseModel], where: str = ""
) -> InvalidRequestError:
    """The refusal for what pydantic found: every finding in the detail, the first one as ``field``."""
    found = error.errors(include_url=False)[:MAX_FINDINGS]
    findings = [_finding(details, model, where) for details in found]
    detail = "; ".join(f"{field or 'the body'} {problem}" for field, problem in findings)
    return InvalidRequestError(detail, field=findings[0][0] or None)


def _finding(details: Mapping[str, Any], model: type[BaseModel], where: str) -> tuple[str, str]:
    place = [part for part in details["loc"] if part != "[key]"]
    message = str(details["msg"]).removeprefix("Value error, ")
    if details["type"] == "value_error":
        if not place and ": " in message:  # found by comparing two options
            name, _, message = message.partition(": ")
            place = [name]
    elif details["type"] == "extra_forbidden":
        message = f"is not known; {_nearest(str(place[-1])[:64], tuple(model.model_fields))}"
    elif details["type"] == "string_pattern_mismatch" and len(place) == 1:
        message = f"is not valid; it is: {model.model_fields[str(place[0])].description}"
    else:
        message = f"is not valid: {message[:1].lower()}{message[1:]}"
    return ".".join(str(part) for part in (*([where] if where else []), *place)), message


def _nearest(name: str, known: Sequence[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"choose from {', '.join(known)}"


def _unknown_option(name: str) -> InvalidRequestError:
    shown = name[:64]
    return InvalidRequestError(
        f"there is no option {shown!r}; {_nearest(shown, OPTION_NAMES)}",
        field=f"options.{shown}",
        limit=OPTION_NAMES,
    )
