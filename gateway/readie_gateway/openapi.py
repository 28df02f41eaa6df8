"""The OpenAPI document, generated from the models that requests are checked with."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, TypeAdapter

from readie_gateway.bodies import CallBody
from readie_gateway.options import CallOptions
from readie_gateway.problems import Problem
from readie_gateway.schemas import (
    Announced,
    CallList,
    CallOutcome,
    CallView,
    CatalogueView,
    CatalogueViews,
    DeadLetterDetail,
    DeadLetterList,
    Dropped,
    ExplainBody,
    Explanation,
    GenerationDetail,
    GenerationViews,
    Pending,
    Readiness,
    Requeued,
    SessionBody,
    SessionList,
    SessionView,
    WorkerViews,
)
from readie_wire.http import (
    API_PREFIX,
    MEDIA_CALL,
    MEDIA_FRAMES,
    MEDIA_JSON,
    MEDIA_NDJSON,
    MEDIA_PROBLEM,
    MEDIA_SSE,
)

_REF = "#/components/schemas/{model}"
_MODELS: tuple[type[BaseModel], ...] = (
    *(CallBody, CallOptions, CallOutcome, Pending, CallView, CallList, Problem),
    *(WorkerViews, CatalogueViews, CatalogueView),
    *(GenerationViews, GenerationDetail, Announced),
    *(ExplainBody, Explanation, Readiness, SessionBody, SessionView, SessionList),
    *(DeadLetterList, DeadLetterDetail, Requeued, Dropped),
)
# Their `options` are checked by `parse_options`, which names a wrong one; the schema says it here.
_WITH_OPTIONS = (CallBody, CallView, ExplainBody, SessionBody)
_STREAM = {"schema": {"type": "string"}}
_FRAMES = {"schema": {"type": "string", "format": "binary"}}


@cache
def openapi_document() -> dict[str, Any]:
    """The whole document. The same object each time: do not change it."""
    _, definitions = TypeAdapter.json_schemas(
        [(model.__name__, "validation", TypeAdapter(model)) for model in _MODELS],
        ref_template=_REF,
    )
    schemas = definitions["$defs"]
    for model in _WITH_OPTIONS:
        schemas[model.__name__]["properties"]["options"] = _schema(CallOptions)["schema"]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Readie",
            "version": version("readie"),
            "description": "Run a Python function on a worker that has already imported what it needs.",
        },
        "security": [{"bearer": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    }


def _paths() -> dict[str, Any]:
    call = f"{API_PREFIX}/calls/{{call_id}}"
    call_id = _parameter("call_id", "path", "The id that the call was accepted with.")
    flavor = _parameter("flavor", "path", "cpu or gpu.")
    return {
        f"{API_PREFIX}/invoke": {"post": _invoke()},
        f"{API_PREFIX}/calls": {
            "get": _operation(
                "The latest calls of this token, the newest first.",
                {200: CallList},
                _parameter("limit", "query", "How many, 50 by default."),
            )
        },
        call: {
            "get": _operation("One call, without its result.", {200: CallView}, call_id),
            "delete": _operation(
                "End a call. 202: its worker was told, and ends it within seconds.",
                {200: Pending, 202: Pending},
                call_id,
            ),
        },
        f"{call}/result": {
            "get": _operation(
                "How a call ended; 202 when it has not within the wait.",
                {200: CallOutcome, 202: Pending},
                call_id,
                _parameter("wait", "query", "Seconds to wait for the end, 0 by default."),
                more={MEDIA_FRAMES: _FRAMES},
            )
        },
        f"{call}/events": {
            "get": _operation(
                "What happened to a call since an event, then live.",
                {},
                call_id,
                _parameter("after", "query", "The last event that is known, 0 by default."),
                _parameter("Last-Event-ID", "header", "The same, as browsers send it."),
                more={MEDIA_SSE: _STREAM, MEDIA_FRAMES: _FRAMES},
            )
        },
        **_session_paths(),
        **_dead_paths(),
        f"{API_PREFIX}/workers": {"get": _operation("The live workers.", {200: WorkerViews})},
        f"{API_PREFIX}/catalogues": {
            "get": _operation(
                "The loaded catalogues, and the files skipped.", {200: CatalogueViews}
            )
        },
        f"{API_PREFIX}/catalogues/{{flavor}}": {
            "get": _operation("The catalogue of a flavor.", {200: CatalogueView}, flavor)
        },
        **_generation_paths(),
        f"{API_PREFIX}/explain": {
            "post": {
                **_operation("Price a call without running it.", {200: Explanation}),
                "requestBody": _body({MEDIA_JSON: _schema(ExplainBody)}),
            }
        },
        f"{API_PREFIX}/imports": {
            "get": _operation(
                "What calls of the last days imported, with counts; a JSON object a line.",
                {},
                _parameter("days", "query", "How many, all that are kept by default."),
                more={MEDIA_NDJSON: _STREAM},
            )
        },
        "/healthz": {"get": _open(_operation("This process answers.", {}))},
        "/readyz": {
            "get": _open(
                _operation(
                    "Whether calls can be taken; what is down.", {200: Readiness, 503: Readiness}
                )
            )
        },
        "/metrics": {
            "get": _operation("Metrics for Prometheus.", {}, more={"text/plain": _STREAM})
        },
        "/openapi.json": {"get": _open(_operation("This document.", {}))},
    }


def _session_paths() -> dict[str, Any]:
    path = f"{API_PREFIX}/sessions"
    session_id = _parameter("session_id", "path", "The id that the session was opened with.")
    return {
        path: {
            "post": {
                **_operation("Open a session: calls that share a sandbox.", {201: SessionView}),
                "requestBody": _body({MEDIA_JSON: _schema(SessionBody)}),
            },
            "get": _operation("The open sessions of this token.", {200: SessionList}),
        },
        f"{path}/{{session_id}}": {
            "get": _operation(
                "One session, also one that has ended.", {200: SessionView}, session_id
            ),
            "delete": _operation("End a session and its sandbox.", {200: SessionView}, session_id),
        },
    }


def _generation_paths() -> dict[str, Any]:
    path = f"{API_PREFIX}/generations"
    return {
        path: {
            "get": _operation(
                "What is published, and what live workers restore of it.", {200: GenerationViews}
            )
        },
        f"{path}/{{generation}}": {
            "get": _operation(
                "One generation: its checkpoints, and what each worker has of them.",
                {200: GenerationDetail},
                _parameter("generation", "path", "The id of the generation."),
            )
        },
        f"{path}/refresh": {
            "post": _operation(
                "Let everybody who follows the bucket look at it now.", {202: Announced}
            )
        },
    }


def _dead_paths() -> dict[str, Any]:
    path = f"{API_PREFIX}/dead"
    call_id = _parameter("call_id", "path", "The id of the parked call.")
    return {
        path: {
            "get": _operation(
                "Calls that came to nothing as often as they may.", {200: DeadLetterList}
            )
        },
        f"{path}/{{call_id}}": {
            "get": _operation(
                "One of them, with its last words.", {200: DeadLetterDetail}, call_id
            ),
            "delete": _operation("Drop it, with its payload.", {200: Dropped}, call_id),
        },
        f"{path}/{{call_id}}/requeue": {
            "post": _operation("Run it once more, under a new id.", {202: Requeued}, call_id)
        },
    }


def _invoke() -> dict[str, Any]:
    operation = _operation(
        "Run a call. 200: how it ended. 202: it has not ended within the wait.",
        {200: CallOutcome, 202: Pending},
        _parameter(
            "Prefer",
            "header",
            "`respond-async`: keep the call, answer 202. `wait=N`: seconds to wait.",
        ),
        _parameter(
            "Idempotency-Key", "header", "The same key and body again answer with the same call."
        ),
        more={MEDIA_SSE: _STREAM, MEDIA_FRAMES: _FRAMES},
    )
    return {
        **operation,
        "requestBody": _body({MEDIA_JSON: _schema(CallBody), MEDIA_CALL: _FRAMES}),
    }


def _operation(
    summary: str,
    answers: Mapping[int, type[BaseModel]],
    *parameters: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): {"description": summary, "content": {MEDIA_JSON: _schema(model)}}
        for status, model in answers.items()
    }
    first = next(iter(responses), "200")
    responses.setdefault(first, {"description": summary, "content": {}})
    responses[first]["content"] |= more or {}
    responses["default"] = {
        "description": "The request was refused.",
        "content": {MEDIA_PROBLEM: _schema(Problem)},
    }
    return {"summary": summary, "parameters": list(parameters), "responses": responses}


def _open(operation: dict[str, Any]) -> dict[str, Any]:
    return {**operation, "security": []}


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": _REF.format(model=model.__name__)}}


def _body(content: Mapping[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": content}


def _parameter(name: str, place: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": text,
        "schema": {"type": "string"},
    }
