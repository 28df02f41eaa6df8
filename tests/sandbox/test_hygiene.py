"""Clones of one checkpoint are fresh: what must differ differs, what imports changed is undone."""

import _ssl  # noqa: F401 - so that its OpenSSL is there to be copied
import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from readie_worker.sandbox.errors import CheckpointRefusedError
from support.executor_driver import pickled_call
from support.sandbox_kits import Bench, gather_calls

OpenBench = Callable[..., Awaitable[Bench]]

CLONES = 8

# A package that has drawn from every generator and changed every setting while it was imported.
UNTIDY = """
import locale, logging, multiprocessing, os, random, resource, signal, ssl, sys, tempfile, threading, time, uuid, warnings
import numpy as np

OWN = random.Random(1)
GENERATOR = np.random.default_rng(2)
LEGACY = np.random.RandomState(3)
HELD = {"deep": [np.random.Generator(np.random.PCG64(4))]}
LEGACY.normal()  # keeps the second value of a pair for the next draw
NAME = tempfile.mktemp()
CONTEXT = ssl.create_default_context()
ssl.RAND_bytes(8)
uuid.uuid1()
random.seed(5)
np.random.seed(6)

os.environ["LEFT_BY_IMPORT"] = "1"
os.chdir("/")
os.umask(0)
sys.argv[:] = ["untidy"]
sys.setrecursionlimit(5000)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, lambda *_: None)
warnings.simplefilter("error")
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
logging.disable(logging.ERROR)
sys.excepthook = lambda *_: None
threading.excepthook = lambda *_: None
HANDLER = logging.StreamHandler(sys.stdout)
locale.setlocale(locale.LC_ALL, "C")
signal.setitimer(signal.ITIMER_PROF, 1000)
signal.setitimer(signal.ITIMER_VIRTUAL, 1000)
threading.setprofile(lambda *_: None)
sys.setprofile(lambda *_: None)
sys.settrace(lambda *_: None)
sys.stdin.close()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
"""


def draw() -> dict[str, object]:
    import multiprocessing
    import os
    import random
    import secrets
    import ssl
    import sys
    import tempfile
    import uuid

    import numpy as np

    untidy = sys.modules["untidy"]
    return {
        "random": random.random(),
        "random.Random held": untidy.OWN.random(),
        "numpy legacy": np.random.rand(),
        "numpy default_rng": np.random.default_rng().random(),
        "Generator held": untidy.GENERATOR.random(),
        "Generator spawned": untidy.GENERATOR.spawn(1)[0].random(),
        "RandomState held": untidy.LEGACY.normal(),
        "Generator held deeply": untidy.HELD["deep"][0].random(),
        "urandom": os.urandom(8),
        "uuid1, whatever the time": uuid.uuid1().node,
        "uuid4": uuid.uuid4(),
        "secrets": secrets.token_hex(),
        "openssl": ssl.RAND_bytes(8),
        "multiprocessing key": bytes(multiprocessing.current_process().authkey),
        "temporary name": tempfile.mktemp(),
        "temporary folder": tempfile.gettempdir(),
        "home": os.environ["HOME"],
    }


def look() -> dict[str, object]:
    import locale
    import logging
    import os
    import resource
    import signal
    import sys
    import threading
    import warnings

    umask = os.umask(0o022)
    return {
        "left by import": os.environ.get("LEFT_BY_IMPORT"),
        "cwd": list(os.scandir()),
        "umask": umask,
        "argv": sys.argv,
        "recursion limit": sys.getrecursionlimit(),
        "SIGTERM": signal.getsignal(signal.SIGTERM),
        "SIGUSR1": signal.getsignal(signal.SIGUSR1),
        "SIGINT": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "filters": [entry[:3] for entry in warnings.filters],
        "root handlers": logging.root.handlers,
        "root level": logging.root.level,
        "disabled": logging.root.manager.disable,
        "excepthook": sys.excepthook is sys.__excepthook__,
        "thread excepthook": threading.excepthook is threading.__excepthook__,
        "threads": threading.active_count(),
        "timers": [signal.getitimer(each) for each in (0, 1, 2)],
        "profile": (sys.getprofile(), threading.getprofile()),
        "trace": sys.gettrace(),
        "locale": locale.setlocale(locale.LC_ALL),
        "encoding": locale.getencoding(),
        "stdin": sys.stdin.read(),
        "open files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }


async def clones(bench: Bench, *imports: str) -> list[dict[str, object]]:
    checkpoint = await bench.checkpoint(*imports)
    runnings = await asyncio.gather(*(bench.start(checkpoint) for _ in range(CLONES)))
    return await gather_calls(runnings, draw)  # type: ignore[return-value]


async def test_every_source_of_randomness_and_identity_differs_between_clones(
    open_runtime: OpenBench,
) -> None:
    drawn = await clones(await open_runtime({"untidy": UNTIDY}), "untidy")
    equal = [name for name in drawn[0] if len({str(clone[name]) for clone in drawn}) < CLONES]
    assert not equal


async def test_what_imports_changed_is_as_in_a_fresh_process(open_runtime: OpenBench) -> None:
    bench = await open_runtime({"untidy": UNTIDY})
    clone = await bench.start(await bench.checkpoint("untidy"))
    fresh = await bench.start()
    assert (await clone.driver.call(look)).value == (await fresh.driver.call(look)).value


async def test_a_handler_made_at_import_writes_to_the_clones_own_output(
    open_runtime: OpenBench,
) -> None:
    bench = await open_runtime({"untidy": UNTIDY})
    running = await bench.start(await bench.checkpoint("untidy"))

    def write() -> None:
        import logging
        import sys

        record = logging.makeLogRecord({"msg": "through the old handler"})
        sys.modules["untidy"].HANDLER.emit(record)

    assert (await running.driver.call(write)).stdout == "through the old handler\n"


# As packages do that want another encoding, or to listen.
GREEDY = """
import codecs, io, sys
print("half a line", end="")
sys.stderr = codecs.getwriter("latin-1")(sys.stderr.detach())
sys.stdout = io.StringIO()
"""


async def test_output_that_an_import_took_is_the_calls_own_again(open_runtime: OpenBench) -> None:
    bench = await open_runtime({"greedy": GREEDY})
    running = await bench.start(await bench.checkpoint("greedy"))

    def speak() -> None:
        import os
        import sys

        print("said")
        print("žluť", end="", file=sys.stderr)
        os._exit(3)  # with what was printed last still to be written, if it is held back

    reply = await running.driver.call(speak)
    assert (reply.stdout, reply.stderr) == ("said\n", "žluť")


async def test_a_checkpoint_without_its_standard_streams_is_refused(
    open_runtime: OpenBench,
) -> None:
    """Its connection would take the place of the one that was closed."""
    bench = await open_runtime({"closes": "import os\nos.close(0)"})
    with pytest.raises(CheckpointRefusedError, match="closes closed or redirected standard input"):
        await bench.checkpoint("closes")


async def test_a_seed_that_the_call_sets_still_reproduces(open_runtime: OpenBench) -> None:
    bench = await open_runtime({"untidy": UNTIDY})
    checkpoint = await bench.checkpoint("untidy")

    def seeded() -> tuple[float, ...]:
        import random

        import numpy as np

        random.seed(7)
        np.random.seed(7)
        return random.random(), float(np.random.rand()), float(np.random.default_rng(7).random())

    runnings = [await bench.start(checkpoint), await bench.start(checkpoint), await bench.start()]
    first, second, cold = await gather_calls(runnings, seeded)
    assert first == second == cold


async def test_clocks_and_time_zone_are_right(bench: Bench) -> None:
    running = await bench.start(await bench.checkpoint("datetime"))

    def now() -> tuple[float, float, str | None]:
        import datetime as dt
        import time

        zone = dt.datetime.now().astimezone().tzname()
        return time.time(), time.monotonic(), zone

    before = time.time()
    reply = await running.driver.run(pickled_call(now), environment={"TZ": "Europe/Prague"})
    wall, monotonic, zone = reply.value
    assert before - 0.5 <= wall <= time.time() + 0.5
    assert monotonic > 0
    assert zone in {"CET", "CEST"}


HOOKED = """
import os
from readie_wire import hooks
EVENTS = []
PIPE = os.pipe()

@hooks.before_checkpoint
def close():
    EVENTS.append("before")

@hooks.before_checkpoint
def first():
    os.close(PIPE[0]); os.close(PIPE[1])
    EVENTS.append("first")

@hooks.after_restore
def again():
    EVENTS.append("after")
"""


async def test_hooks_run_before_the_checkpoint_and_in_every_clone(open_runtime: OpenBench) -> None:
    bench = await open_runtime({"hooked": HOOKED})
    checkpoint = await bench.checkpoint("hooked")

    def events() -> list[str]:
        import sys

        return list(sys.modules["hooked"].EVENTS)

    runnings = [await bench.start(checkpoint), await bench.start(checkpoint)]
    assert await gather_calls(runnings, events) == [["first", "before", "after"]] * 2


# The parts of torch that matter to clones, since the real one is several hundred MB.
TORCH = """
import random, sys, types
_default = random.Random(1)

class Generator:
    __slots__ = ("_state",)  # like the real one: not an object that the collector knows

    def __init__(self):
        self._state = random.Random(2)

    def manual_seed(self, seed):
        assert 0 <= seed < 2**63
        self._state = random.Random(seed)

    def draw(self):
        return self._state.random()

HELD = Generator()
cuda = types.ModuleType("torch.cuda")
cuda.is_initialized = lambda: INITIALIZED
cuda._cached_device_count = 0
sys.modules["torch.cuda"] = cuda
INITIALIZED = False

def manual_seed(seed):
    global _default
    assert 0 <= seed < 2**63
    _default = random.Random(seed)

def rand():
    return _default.random()
"""


async def test_torch_is_reseeded_and_forgets_the_devices_it_counted(
    open_runtime: OpenBench,
) -> None:
    bench = await open_runtime({"torch": TORCH})
    checkpoint = await bench.checkpoint("torch")

    def draw_with_torch() -> tuple[object, ...]:
        import sys

        torch = sys.modules["torch"]
        return torch.rand(), torch.HELD.draw(), torch.cuda._cached_device_count

    runnings = [await bench.start(checkpoint) for _ in range(3)]
    draws = await gather_calls(runnings, draw_with_torch)
    default, held, counts = zip(*draws, strict=True)
    assert len(set(default)) == len(set(held)) == 3
    assert set(counts) == {None}


async def test_clones_make_private_keys_of_their_own(open_runtime: OpenBench) -> None:
    """Cryptography has an OpenSSL beside the one of `ssl`; it has drawn before the checkpoint."""
    imports = "from cryptography.hazmat.primitives.asymmetric import ec\n"
    bench = await open_runtime({"keys": f"{imports}KEY = ec.generate_private_key(ec.SECP256R1())"})
    checkpoint = await bench.checkpoint("keys")

    def make() -> tuple[object, ...]:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = ec.generate_private_key(ec.SECP256R1())
        return key.private_numbers().private_value, AESGCM.generate_key(128)

    runnings = [await bench.start(checkpoint) for _ in range(2)]
    private, symmetric = zip(*await gather_calls(runnings, make), strict=True)
    assert len(set(private)) == len(set(symmetric)) == 2


# As the wheels of database drivers bring one.
BUNDLED = """
import ctypes, pathlib
LIBRARY = ctypes.CDLL(str(pathlib.Path(__file__).with_name("libcrypto-own.so")))

def draw():
    data = ctypes.create_string_buffer(16)
    assert LIBRARY.RAND_bytes(data, 16) == 1
    return data.raw

draw()
"""


@pytest.fixture
def libcrypto() -> str:
    """The file of this interpreter's own OpenSSL."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    found = {path for line in lines if "/libcrypto.so" in (path := line.split()[-1])}
    if not found:
        pytest.skip("the OpenSSL of this Python is no file of its own")
    return found.pop()


async def test_an_openssl_that_a_package_brings_is_reseeded(
    open_runtime: OpenBench, short_path: Path, libcrypto: str
) -> None:
    bench = await open_runtime({"bundled": BUNDLED})
    [packages] = (short_path / "python").glob("lib/python*/site-packages")
    shutil.copyfile(libcrypto, packages / "libcrypto-own.so")
    checkpoint = await bench.checkpoint("bundled")

    def draw_there() -> object:
        import sys

        return sys.modules["bundled"].draw()

    runnings = [await bench.start(checkpoint) for _ in range(2)]
    assert len(set(await gather_calls(runnings, draw_there))) == 2


# The part of numba that draws random numbers in compiled functions.
NUMBA = """
import random, sys, types
STATES = {0x100: random.getrandbits(64), 0x200: random.getrandbits(64)}
parts = types.ModuleType("numba._helperlib")
parts.rnd_get_np_state_ptr = lambda: 0x100
parts.rnd_get_py_state_ptr = lambda: 0x200

def rnd_seed(state, seed):
    STATES[state] = bytes(seed)

parts.rnd_seed = rnd_seed
sys.modules["numba._helperlib"] = parts
"""


async def test_what_numba_keeps_for_compiled_functions_is_reseeded(open_runtime: OpenBench) -> None:
    bench = await open_runtime({"numba": NUMBA})
    checkpoint = await bench.checkpoint("numba")

    def states() -> tuple[object, ...]:
        import sys

        return tuple(sys.modules["numba"].STATES.values())

    runnings = [await bench.start(checkpoint) for _ in range(2)]
    first, second = await gather_calls(runnings, states)
    assert len({*first, *second}) == 4  # type: ignore[misc]


async def test_a_checkpoint_with_cuda_initialised_is_refused(open_runtime: OpenBench) -> None:
    bench = await open_runtime({"torch": TORCH, "model": "import torch\ntorch.INITIALIZED = True"})
    with pytest.raises(CheckpointRefusedError, match="model initialised CUDA"):
        await bench.checkpoint("torch", "model")
