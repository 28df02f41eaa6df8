"""From publishing to the first call on a new generation, and what calls feel of the swap."""

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.image_files import MB, with_images
from benchmarks.measuring import Series
from benchmarks.moving import move
from benchmarks.object_server import BUCKET
from benchmarks.reporting import Table
from benchmarks.stack import Stack, running
from readie_infra.bucket import SigningKey
from readie_infra.objects import open_objects
from readie_pipeline.publish.notifying import notify
from readie_pipeline.publish.publishing import roll_back
from readie_wire.publication import ANY_ROOTFS

SOURCE = "import six\nresult = six.__name__"
CALLERS = 4
BIN_S = 0.5
PHASE_S = 4.0  # of calls before and after a swap
ARRIVAL_S = 120.0  # that a new generation may take until a call runs on it
POLL_S = 10.0  # the default of READIE_BUCKET_POLL
POLL, NUDGE = "polled", "nudged"


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes generations of ``captured`` with made-up images of ``size`` bytes below ``prefix``."""

    captured: Path
    folder: Path
    key: Path
    prefix: str
    size: int

    @property
    def settings(self) -> dict[str, str]:
        """What a fleet that follows is told."""
        return {
            "READIE_BUCKET": f"s3://{BUCKET}/{self.prefix}",
            "READIE_BUCKET_KEYS": SigningKey.read(self.key).public,
            "READIE_BUCKET_POLL": str(POLL_S),
        }

    def make(self, seed: int) -> tuple[str, Path]:
        """A new generation, not yet published: its id and folder."""
        folder = self.folder / f"{self.prefix}-{seed}"
        return with_images(self.captured, folder, {"checkpoint_1": self.size}, seed), folder

    def publish(self, folder: Path) -> None:
        """In a process of its own: it would slow down callers in this one."""
        move("publish", self.prefix, folder, self.key)

    def roll_back(self) -> None:
        roll_back(open_objects(f"s3://{BUCKET}/{self.prefix}"), "cpu", ANY_ROOTFS)


def generation_caller(stack: Stack) -> Callable[[], str]:
    """Calls over one connection; each answers the generation it ran on. Raises `RuntimeError`."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=60)
    body = json.dumps({"source": SOURCE})
    headers = {
        "Authorization": f"Bearer {stack.token}",
        "Content-Type": "application/json",
        "Accept": "application/json",
    }

    def call() -> str:
        connection.request("POST", "/v1/invoke", body, headers)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        if answer.status != 200 or not told["ok"] or told["value"] != "six":
            raise RuntimeError(f"HTTP {answer.status}: {told}")
        return str(told["receipt"]["generation"])

    return call


def wait_for(call: Callable[[], str], generation: str) -> None:
    """Until a call ran on it."""
    deadline = time.monotonic() + ARRIVAL_S
    while call() != generation:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no call ran on {generation} within {ARRIVAL_S:.0f} s")


def measure_arrival(publisher: Publisher, *, rounds: int) -> tuple[Table, list[Series]]:
    """Polled and nudged in turn, from the pointer until the result of the first call."""
    taken: dict[str, list[float]] = {POLL: [], NUDGE: []}
    generation, folder = publisher.make(0)
    publisher.publish(folder)
    with running(None, settings=publisher.settings) as stack:
        call = generation_caller(stack)
        wait_for(call, generation)
        for number in range(2 * rounds):
            way = NUDGE if number % 2 else POLL
            generation, folder = publisher.make(number + 1)
            if way == POLL:  # at any moment between two looks
                time.sleep(random.uniform(0, POLL_S))
            publisher.publish(folder)
            began = time.perf_counter()
            if way == NUDGE:
                notify(stack.url, stack.token)
            wait_for(call, generation)
            taken[way].append(time.perf_counter() - began)
    title = "From the new pointer until the first call on the new generation has returned"
    table = Table(title, ["", "runs", "median s", "longest s"])
    series = [Series(way, times) for way, times in taken.items()]
    for one in series:
        longest = f"{max(one.seconds):.2f}"
        table.rows.append([one.name, str(len(one.seconds)), f"{one.median:.2f}", longest])
    table.remarks.append(
        f"- Workers look every {POLL_S:.0f} s by themselves. The generation has {publisher.size / MB:.0f} MB "
        f"of images, which are fetched and proven within this time."
    )
    return table, series


class Load:
    """Callers that call without a pause; every answer is kept with its time."""

    def __init__(self, stack: Stack) -> None:
        self._stop = threading.Event()
        self._callers = [
            threading.Thread(target=self._keep_calling, args=(generation_caller(stack),))
            for _ in range(CALLERS)
        ]
        self.answers: list[tuple[float, str]] = []  # when, and on which generation
        self.failures: list[tuple[float, str]] = []

    def __enter__(self) -> "Load":
        for caller in self._callers:
            caller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for caller in self._callers:
            caller.join()

    def wait_for_all_on(self, generation: str) -> None:
        """Until the last answer of every caller came from it."""
        deadline = time.monotonic() + ARRIVAL_S
        while {name for _, name in self.answers[-2 * CALLERS :]} != {generation}:
            if time.monotonic() > deadline:
                raise RuntimeError(f"calls do not run on {generation}")
            time.sleep(0.01)

    def rates(self, began: float, ended: float) -> tuple[float, float]:
        """Calls per second in that time, and in the worst `BIN_S` of it."""
        times = [at for at, _ in self.answers if began <= at < ended]
        bins = max(1, int((ended - began) / BIN_S))
        width = (ended - began) / bins
        counts = [0] * bins
        for at in times:
            counts[min(bins - 1, int((at - began) / width))] += 1
        return len(times) / (ended - began), min(counts) / width

    def _keep_calling(self, call: Callable[[], str]) -> None:
        while not self._stop.is_set():
            try:
                generation = call()
            except (OSError, RuntimeError) as error:
                self.failures.append((time.perf_counter(), str(error)))
            else:
                self.answers.append((time.perf_counter(), generation))


@contextmanager
def phase(spans: dict[str, tuple[float, float]], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    spans[name] = (began, time.perf_counter())


def measure_swap(publisher: Publisher) -> tuple[Table, list[Series]]:
    """Calls per second while a generation is published, fetched and swapped in, and rolled back."""
    first, folder = publisher.make(100)
    publisher.publish(folder)
    second, folder = publisher.make(101)
    spans: dict[str, tuple[float, float]] = {}
    with running(None, settings=publisher.settings) as stack:
        wait_for(generation_caller(stack), first)
        with Load(stack) as load:
            with phase(spans, "before"):
                time.sleep(PHASE_S)
            with phase(spans, "published by the same two cores"):
                publisher.publish(folder)
            with phase(spans, "fetched and swapped in"):
                notify(stack.url, stack.token)
                load.wait_for_all_on(second)
            with phase(spans, "after"):
                time.sleep(PHASE_S)
            with phase(spans, "rolled back"):
                publisher.roll_back()
                notify(stack.url, stack.token)
                load.wait_for_all_on(first)
    title = f"Calls of {CALLERS} callers while the generation is swapped"
    heads = ["", "seconds", "calls a second", ": before", f"in the worst {BIN_S} s", "failed"]
    table = Table(title, heads)
    reference = load.rates(*spans["before"])[0]
    for name, (began, ended) in spans.items():
        rate, worst = load.rates(began, ended)
        failed = sum(began <= at < ended for at, _ in load.failures)
        cells = [f"{ended - began:.1f}", f"{rate:.0f}", f"{rate / reference:.2f}", f"{worst:.0f}"]
        table.rows.append([name, *cells, str(failed)])
    table.remarks.append(f"- The generation has {publisher.size / MB:.0f} MB of images.")
    if load.failures:
        table.remarks.append(f"- The first failure: {load.failures[0][1]}")
    return table, [Series("answers, since the first", _since_first(load.answers))]


def _since_first(answers: Sequence[tuple[float, str]]) -> list[float]:
    times = sorted(at for at, _ in answers)
    return [at - times[0] for at in times]
