"""A hosted language model that writes example programs; they are read as text and never run.

Imported only when a model is asked: ``openai`` comes with the extra ``corpus``.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import openai

from readie_pipeline.corpus.dataset import Workload
from readie_pipeline.corpus.patience import Patience, failure
from readie_pipeline.corpus.reading import read_code
from readie_pipeline.corpus.sources import Found
from readie_pipeline.errors import ServiceError

_TITLE = "the hosted model"
_PROGRAMS_AN_ANSWER = 5  # more, and answers grow so long that they are cut off
_MOST_CHARACTERS = 20_000  # of one program; examples have a tenth of it
_SYSTEM = """\
You write realistic example programs, as people run them in scripts and notebooks. They use whatever \
published Python packages, datasets, models and tokenizers fit the task, by their real names."""
_TASK = """\
Write {count} different Python programs from this field: {domain}. This is request {number}: choose \
other tasks than would come to mind first. Answer with nothing but JSON of this form:
{{"programs": ["import …\\n…", …]}}"""
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model is. The key is found by the library: ``OPENAI_API_KEY`` and its kin.

    ``base_url`` is of any service that speaks as OpenAI's does; ``azure`` of an Azure resource,
    where ``model`` is the name of the deployment. Neither: OpenAI itself.
    """

    model: str
    base_url: str | None = None
    azure: str | None = None
    azure_api_version: str | None = None

    def connect(self, patience: Patience) -> openai.OpenAI:
        """Raises `ServiceError`: no key, or no API version for Azure."""
        limits: Any = {"timeout": patience.deadline_s, "max_retries": patience.retries}
        try:
            if self.azure is not None:
                return openai.AzureOpenAI(
                    azure_endpoint=self.azure, api_version=self.azure_api_version, **limits
                )
            return openai.OpenAI(base_url=self.base_url, **limits)
        except (openai.OpenAIError, ValueError) as error:
            raise ServiceError(_what_is_missing(azure=self.azure is not None)) from error


class HostedModel:
    """Programs of several fields, ``limit`` of each, a few an answer."""

    def __init__(
        self, endpoint: Endpoint, domains: Sequence[str], limit: int, patience: Patience
    ) -> None:
        self._client = endpoint.connect(patience)
        self._model = endpoint.model
        self._domains = domains
        self._limit = limit
        # Addresses may hold credentials, and this is written down.
        address = str(endpoint.azure or endpoint.base_url)
        self.key = f"model {hashlib.sha256(address.encode()).hexdigest()[:12]} {self._model}"
        self.title = f"programs by {self._model}"

    def close(self) -> None:
        """Let its connections go."""
        self._client.close()

    def references(self) -> Iterator[str]:
        answers = -(-self._limit // _PROGRAMS_AN_ANSWER)
        for domain in self._domains:
            for number in range(1, answers + 1):
                yield f"{domain}#{number}"

    def fetch(self, reference: str) -> Sequence[Found]:
        domain, _, number = reference.rpartition("#")
        answer = self._ask(
            _TASK.format(count=_PROGRAMS_AN_ANSWER, domain=domain, number=int(number))
        )
        try:
            programs = programs_in(answer)
        except ValueError as error:
            return [Found(reference, None, [f"the model's answer is of no use: {error}"])]
        room = self._limit - (int(number) - 1) * _PROGRAMS_AN_ANSWER
        return [
            self._read(f"{reference}.{place}", domain, program)
            for place, program in enumerate(programs[: min(room, _PROGRAMS_AN_ANSWER)], start=1)
        ]

    def _ask(self, task: str) -> str:
        try:
            answer = self._client.chat.completions.create(
                model=self._model,
                messages=[
                    {"role": "system", "content": _SYSTEM},
                    {"role": "user", "content": task},
                ],
            )
            return answer.choices[0].message.content or ""
        except openai.APITimeoutError as error:
            raise ServiceError(f"{_TITLE} does not answer in time") from error
        except openai.APIError as error:
            raise failure(_TITLE, error) from error
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            raise ServiceError(f"{_TITLE} sends an answer that cannot be used") from error

    def _read(self, reference: str, domain: str, program: Any) -> Found:
        problem = _problem_of(program)
        if problem:
            return Found(reference, None, [problem])
        digest = hashlib.sha256(
            f"model:{self._model}\0{program}".encode("utf-8", "backslashreplace")
        )
        workload = Workload(
            id=digest.hexdigest()[:12],
            source=f"model:{self._model}",
            resources=read_code([program]).resources,
            domain=domain,
            code=(program,),
        )
        return Found(reference, workload)


def programs_in(answer: str) -> Sequence[Any]:
    """The list that was asked for, also out of a fenced block. Raises `ValueError`."""
    fenced = _FENCED.search(answer)
    try:
        value = json.loads(fenced[1] if fenced else answer)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    match value:
        case {"programs": list(programs)}:
            return programs
    raise ValueError('it has no list of "programs"')


def _problem_of(program: Any) -> str:
    """Why an element of the list is no example program, or nothing."""
    if not isinstance(program, str) or not program.strip():
        return "is no program"
    if len(program) > _MOST_CHARACTERS:
        return f"is longer than {_MOST_CHARACTERS} characters"
    try:
        ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"is no Python: {error}"
    if not read_code([program]).resources.packages:
        return "imports no package"
    return ""


def _what_is_missing(*, azure: bool) -> str:
    if azure:
        return (
            f"{_TITLE} cannot be asked: set AZURE_OPENAI_API_KEY (or AZURE_OPENAI_AD_TOKEN), and "
            "give --azure-api-version (or OPENAI_API_VERSION)"
        )
    return f"{_TITLE} cannot be asked: set OPENAI_API_KEY; any text will do where none is needed"
