"""Kaggle, a Hugging Face hub, hosted models, a package index and a gateway, made up, on loopback.

They answer the real client libraries over real HTTP, with the paths, headers and status codes of the
originals as far as the corpus uses them.
"""

import json
import re
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

KAGGLE_LOGIN = ("ada", "kaggle-secret-1")
HUB_TOKEN = "hf_secret2"
MODEL_KEY = "sk-secret-3"
GATEWAY_TOKEN = "gateway-secret-4"
SECRETS = (KAGGLE_LOGIN[1], HUB_TOKEN, MODEL_KEY, GATEWAY_TOKEN)

LONGEST_HANG_S = 60.0  # a request that hangs ends with its server, or after this


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any, status: int = 200, **headers: str) -> "Answer":
        described = {"Content-Type": "application/json", **headers}
        return cls(status, json.dumps(value).encode(), described)


@dataclass
class Trouble:
    """What goes wrong with the next ``times`` requests whose path contains ``where``."""

    where: str
    times: int = 1
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut_short: bool = False  # half of the answer, and the connection closes
    hangs: bool = False  # no answer until the server is released


@dataclass
class FakeServices:
    """What they have, and what they were asked: ``asked`` counts ``METHOD path?query``."""

    url: str
    packages: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    datasets: set[str] = field(default_factory=set)
    spaces: dict[str, dict[str, str]] = field(default_factory=dict)
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    kaggle_datasets: set[str] = field(default_factory=set)
    model_answers: list[str] = field(default_factory=list)
    recorded: list[dict[str, Any]] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    asked_at: list[float] = field(default_factory=list)  # seconds, of each request
    hanging: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    clients: ExitStack = field(default_factory=ExitStack)  # closed before the server is

    def asked_for(self, part: str) -> int:
        return sum(times for path, times in self.asked.items() if part in path)

    def trouble_at(self, path: str) -> Trouble | None:
        with self.lock:
            self.asked[path] += 1
            self.asked_at.append(time.monotonic())
            for trouble in self.troubles:
                if trouble.where in path and trouble.times > 0:
                    trouble.times -= 1
                    return trouble
        return None


@contextmanager
def fake_services() -> Iterator[FakeServices]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.daemon_threads = True
    fake = FakeServices(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = _handler(fake)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with fake.clients:
            yield fake
    finally:
        fake.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(fake: FakeServices) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            detail = f" {body.decode()}" if "/kaggle/" in self.path else ""
            trouble = fake.trouble_at(f"{self.command} {unquote(self.path)}{detail}")
            if trouble and trouble.hangs:
                fake.hanging.set()
                fake.released.wait(LONGEST_HANG_S)
                self.close_connection = True
                return
            if trouble and trouble.status:
                answer = Answer.of({"error": "made up"}, trouble.status, **trouble.headers)
            else:
                answer = self._answer(json.loads(body) if body else {})
            self._send(answer, cut_short=bool(trouble and trouble.cut_short))

        do_GET = do_HEAD = do_POST = _serve  # noqa: N815

        def _answer(self, body: Any) -> Answer:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            for pattern, serve in _ROUTES:
                if found := re.fullmatch(pattern, unquote(parts.path)):
                    given = {name.lower(): value for name, value in self.headers.items()}
                    return serve(fake, {**query, **found.groupdict()}, body, given)
            return Answer.of({"error": "no such path"}, 404)

        def _send(self, answer: Answer, *, cut_short: bool) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            sent = answer.body[: len(answer.body) // 2] if cut_short else answer.body
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(sent)

        def log_message(self, *_: object) -> None:
            """Quietly."""

    return Handler


def _index(fake: FakeServices, given: dict[str, str], _body: Any, _headers: Any) -> Answer:
    known = given["name"] in fake.packages
    return Answer(200 if known else 404, b"<html>files</html>", {"Content-Type": "text/html"})


def _hub_refusal(headers: dict[str, str]) -> Answer | None:
    token = headers.get("authorization")
    if token in (None, f"Bearer {HUB_TOKEN}"):
        return None
    message = "Invalid credentials in Authorization header"
    return Answer.of({"error": message}, 401, **{"X-Error-Message": message})


def _repository(fake: FakeServices, given: dict[str, str], _body: Any, headers: Any) -> Answer:
    """The hub answers 401 of what is not there, as it does of what is private."""
    if refusal := _hub_refusal(headers):
        return refusal
    name = given["id"]
    known = fake.models if given["kind"] == "models" else fake.datasets
    if given["kind"] == "spaces" and name in fake.spaces:
        siblings = [{"rfilename": file} for file in fake.spaces[name]]
        return Answer.of({"id": name, "siblings": siblings})
    if given["kind"] != "spaces" and name in known:
        return Answer.of({"id": name})
    gone = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
    return Answer.of({"error": "Repository not found"}, 401, **gone)


def _spaces(fake: FakeServices, given: dict[str, str], _body: Any, headers: Any) -> Answer:
    if refusal := _hub_refusal(headers):
        return refusal
    found = [{"id": name} for name in fake.spaces if given["search"] in name]
    return Answer.of(found[: int(given["limit"])])


def _space_file(fake: FakeServices, given: dict[str, str], _body: Any, headers: Any) -> Answer:
    if refusal := _hub_refusal(headers):
        return refusal
    text = fake.spaces[given["id"]].get(given["file"], "")
    if text == "gone":
        return Answer.of({}, 404, **{"X-Error-Code": "EntryNotFound"})
    return Answer(200, text.encode(), {"Content-Type": "text/plain"})


def _kaggle(fake: FakeServices, given: dict[str, str], body: Any, headers: Any) -> Answer:
    wanted = "Basic " + b64encode(":".join(KAGGLE_LOGIN).encode()).decode()
    if headers.get("authorization") != wanted:
        return Answer.of({"code": 401, "message": "Unauthenticated"}, 401)
    match given["method"]:
        case "ListKernels":
            found = [name for name in fake.kernels if body["search"] in name]
            size = min(int(body["pageSize"]), 2)  # pages so small that there are some
            first = (int(body["page"]) - 1) * size
            page = [{"ref": name} for name in found[first : first + size]]
            return Answer.of({"kernels": page, "nextPageToken": ""})
        case "GetKernel":
            name = f"{body['userName']}/{body['kernelSlug']}"
            if name in fake.kernels:
                return Answer.of(fake.kernels[name])
        case "GetDataset":
            name = f"{body['ownerSlug']}/{body['datasetSlug']}"
            if name in fake.kaggle_datasets:
                return Answer.of({"ref": name})
            return Answer.of({"code": 403, "message": "Permission denied"}, 403)
    return Answer.of({"code": 404, "message": "Not found"}, 404)


def _completion(fake: FakeServices, given: dict[str, str], body: Any, headers: Any) -> Answer:
    azure = "deployment" in given
    key = headers.get("api-key") if azure else headers.get("authorization")
    if key != (MODEL_KEY if azure else f"Bearer {MODEL_KEY}"):
        message = f"Incorrect API key provided: {key}"
        return Answer.of({"error": {"message": message, "code": "invalid_api_key"}}, 401)
    if azure and not given.get("api-version"):
        return Answer.of({"error": {"message": "no api-version"}}, 400)
    with fake.lock:
        text = fake.model_answers.pop(0) if fake.model_answers else "I would rather not."
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    described = {"id": "c", "object": "chat.completion", "created": int(time.time())}
    return Answer.of({**described, "model": body["model"], "choices": [choice]})


def _imports(fake: FakeServices, given: dict[str, str], _body: Any, headers: Any) -> Answer:
    if headers.get("authorization") != f"Bearer {GATEWAY_TOKEN}":
        return Answer.of({"code": "unauthorized", "detail": "no such token"}, 401)
    if int(given.get("days", "1")) > 7:
        return Answer.of({"detail": "days: '9' is not a number from 1 to 7"}, 400)
    lines = "".join(json.dumps(line) + "\n" for line in fake.recorded)
    return Answer(200, lines.encode(), {"Content-Type": "application/x-ndjson"})


_ROUTES: list[tuple[str, Callable[[FakeServices, dict[str, str], Any, Any], Answer]]] = [
    (r"/index/(?P<name>[^/]+)/", _index),
    (r"/hub/api/spaces", _spaces),
    (r"/hub/api/(?P<kind>models|datasets|spaces)/(?P<id>.+)", _repository),
    (r"/hub/spaces/(?P<id>[^/]+/[^/]+)/resolve/main/(?P<file>.+)", _space_file),
    (r"/kaggle/v1/[\w.]+/(?P<method>\w+)", _kaggle),
    (r"/openai/v1/chat/completions", _completion),
    (r"/azure/openai/deployments/(?P<deployment>[^/]+)/chat/completions", _completion),
    (r"/v1/imports", _imports),
]
