"""Calls as bytes: what travels how, what cannot, and what comes back as what it was."""

import dataclasses
import enum
import functools
import logging
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import readie
from readie._diagnosis import size_tree
from readie._errors import SerializationError
from readie._imports import find_imports
from readie._pickling import Payload, largest_parts, pack, unpack

OWN_MODULE = __name__
LOCK = threading.Lock()

RUN_ONE_CALL = """
import sys, cloudpickle
call = cloudpickle.load(sys.stdin.buffer)
value = call["func"](*call["args"], **call["kwargs"])
sys.stdout.buffer.write(cloudpickle.dumps(value))
"""


def packed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Payload:
    findings = find_imports(function, OWN_MODULE)
    return pack(function, args, kwargs, findings=findings, by_value=OWN_MODULE)


def elsewhere(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call in a process that has neither this module nor its folder."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN_ONE_CALL],
        input=packed(function, *args, **kwargs).data,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return unpack(done.stdout)


@dataclasses.dataclass
class Point:
    x: int
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True, kw_only=True, order=True)
class Slotted:
    x: int
    y: int = 3


class Lazy:
    def __init__(self, x: int) -> None:
        self.x = x

    @functools.cached_property
    def doubled(self) -> int:
        return 2 * self.x


class Colour(enum.Enum):
    RED = 1


class Named(NamedTuple):
    x: int
    tag: str = "none"

    def doubled(self) -> int:
        return 2 * self.x


@pytest.mark.parametrize("value", [Point(1), Slotted(x=1)])
def test_dataclasses_stay_what_they_are_on_both_sides(value: Any) -> None:
    def function(point: Any) -> Any:
        names = [field.name for field in dataclasses.fields(point)]
        return (
            names,
            dataclasses.asdict(point),
            dataclasses.replace(point, x=2),
            hasattr(point, "__dict__"),
        )

    init = type(value).__init__
    names, as_dict, replaced, has_dict = elsewhere(function, value)
    assert names == [field.name for field in dataclasses.fields(value)]
    assert as_dict == dataclasses.asdict(value)
    assert isinstance(replaced, type(value))
    assert replaced == dataclasses.replace(value, x=2)
    assert has_dict == hasattr(value, "__dict__")
    assert type(value).__init__ is init, "the class that is here was written over"


def test_named_tuples_stay_what_they_are_on_both_sides() -> None:
    fields, changed, made = elsewhere(
        lambda given: (given._fields, given._replace(x=5), Named(7).doubled()), Named(1)
    )
    assert fields == Named._fields
    assert type(changed) is Named
    assert changed == Named(5)
    assert made == 14


def test_classes_with_cached_properties_travel() -> None:
    assert elsewhere(lambda given: (given.doubled, vars(given)), Lazy(2)) == (
        4,
        {"x": 2, "doubled": 4},
    )


def test_a_dataclass_can_be_extended_on_the_other_side() -> None:
    def function() -> Any:
        @dataclasses.dataclass
        class More(Point):
            z: int = 5

        return dataclasses.astuple(More(1)), [
            field.default is dataclasses.MISSING for field in dataclasses.fields(More)
        ]

    assert elsewhere(function) == ((1, [], 5), [True, True, False])


def test_enum_members_come_back_as_the_same_objects() -> None:
    assert elsewhere(lambda: [Colour.RED, Colour(1)]) == [Colour.RED, Colour.RED]
    assert elsewhere(lambda colour: colour, Colour.RED) is Colour.RED


def test_a_class_defined_on_the_other_side_is_usable_here() -> None:
    def function() -> Any:
        class There:
            def __init__(self) -> None:
                self.value = 7

            def double(self) -> int:
                return self.value * 2

        return There()

    first, second = elsewhere(function), elsewhere(function)
    assert first.double() == second.double() == 14


def test_cached_functions_travel_also_when_they_call_themselves() -> None:
    assert elsewhere(fibonacci, 30) == 832040


@functools.lru_cache
def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def test_traces_from_the_other_side_name_the_file_and_the_line() -> None:
    code = elsewhere(lambda: fibonacci.__wrapped__.__code__.co_filename)
    assert code == __file__


def write_package(folder: Path) -> None:
    package = folder / "ownpkg"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("VALUE = 40\n")
    (package / "part.py").write_text(
        "from . import VALUE\nfrom .deep.leaf import one\nimport ownmod\n"
        "def g(): return VALUE + one() + ownmod.ONE\n"
        "class Thing:\n    def __eq__(self, other): return type(other) is Thing\n"
    )
    (package / "deep" / "__init__.py").write_text("")
    (package / "deep" / "leaf.py").write_text("import pandas\ndef one(): return 1\n")
    (folder / "ownmod.py").write_text("ONE = 1\n")


@pytest.fixture
def own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = {"ownpkg", "ownpkg.part", "ownpkg.deep", "ownpkg.deep.leaf", "ownmod"}
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_local_modules_travel_with_all_that_they_import(own_package: Path) -> None:
    def function() -> Any:
        from ownpkg import part  # type: ignore[import-not-found]

        return part.g(), part.__file__

    payload = packed(function)
    assert payload.modules == ("ownmod", "ownpkg")
    assert "pandas" in payload.imports
    assert not {name for name in payload.imports if name.startswith("own")}
    assert elsewhere(function) == (42, str(own_package / "ownpkg" / "part.py"))


def test_objects_of_local_modules_come_back_as_objects_of_those_modules(own_package: Path) -> None:
    import ownpkg.part  # type: ignore[import-not-found]

    thing = elsewhere(lambda: ownpkg.part.Thing())
    assert type(thing) is ownpkg.part.Thing
    assert elsewhere(lambda given: given, ownpkg.part.Thing()) == thing


def test_a_module_that_the_user_registered_by_value_is_shipped_by_value(own_package: Path) -> None:
    import ownmod  # type: ignore[import-not-found]

    cloudpickle.register_pickle_by_value(ownmod)
    try:
        assert elsewhere(lambda: ownmod.ONE) == 1
    finally:
        cloudpickle.unregister_pickle_by_value(ownmod)
    assert OWN_MODULE not in cloudpickle.list_registry_pickle_by_value()


def test_a_local_module_that_is_no_source_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "built.so").write_bytes(b"")
    module = type(sys)("built")
    module.__file__ = str(tmp_path / "built.so")
    monkeypatch.setitem(sys.modules, "built", module)
    with pytest.raises(SerializationError, match=r"built .*is no Python source"):
        packed(lambda: module)


class Holder:
    def __init__(self) -> None:
        self.parts = [1, {"key": LOCK}]


HOLDER = Holder()


def uses_lock() -> bool:
    return LOCK.locked()


def uses_holder() -> object:
    return HOLDER


def test_a_lock_is_refused_with_the_path_to_it_and_a_hint() -> None:
    with pytest.raises(SerializationError) as caught:
        packed(uses_lock)
    assert "uses_lock → globals → LOCK : _thread.lock" in str(caught.value)
    assert "inside the function" in str(caught.value)
    assert caught.value.path == ("uses_lock", "globals", "LOCK")
    assert isinstance(caught.value.__cause__, TypeError)


def test_the_path_leads_through_objects_containers_and_closures() -> None:
    with pytest.raises(SerializationError) as caught:
        packed(uses_holder)
    assert caught.value.path == ("uses_holder", "globals", "HOLDER", ".parts", "[1]", "['key']")

    held = [LOCK]
    with pytest.raises(SerializationError) as caught:
        packed(lambda: held)
    assert caught.value.path == ("<lambda>", "closure", "held", "[0]")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ((n for n in range(3)), "generator"),
        (threading.local(), "_thread._local"),
        (sys._getframe(), "frame"),
        ({"deep": [LOCK]}, "_thread.lock"),
    ],
)
def test_arguments_that_cannot_travel_are_named(value: object, name: str) -> None:
    with pytest.raises(SerializationError, match=rf"argument 1.* : {name}\. Hint"):
        packed(print, value)
    with pytest.raises(SerializationError, match=rf"argument end.* : {name}\. Hint"):
        packed(print, end=value)


def test_an_open_socket_is_refused_with_its_remedy() -> None:
    with (
        socket.socket() as connection,
        pytest.raises(SerializationError, match="connect inside the function"),
    ):
        packed(print, connection)


def test_the_path_leads_into_the_class_of_an_object() -> None:
    class Guarded:
        guard = LOCK

    with pytest.raises(SerializationError) as caught:
        packed(print, Guarded())
    assert caught.value.path == ("argument 1", "class", "class attribute guard")


def test_a_client_is_refused_as_what_it_is() -> None:
    client = readie.Client("http://127.0.0.1:1")
    remedy = r"closure → client : readie\.Client\. Hint: make the client inside the function"
    with pytest.raises(SerializationError, match=remedy):
        packed(lambda: client)


def test_loggers_travel_by_name() -> None:
    log = logging.getLogger("own")
    assert elsewhere(lambda: log.name) == "own"


def test_endless_recursion_in_an_argument_is_an_error_with_words() -> None:
    class Endless:
        def __reduce__(self) -> Any:
            return (list, ([Endless()],))

    with pytest.raises(SerializationError, match="argument 1"):
        packed(print, Endless())


def test_what_is_nested_too_deeply_is_refused_with_a_short_path() -> None:
    chain: list[Any] = []
    for _ in range(100_000):
        chain = [chain]
    with pytest.raises(SerializationError, match=r"argument 1 → \[0\] → \[0\] → … .*nested"):
        packed(print, chain)


@pytest.mark.parametrize("problem", [KeyError("own"), OSError("own"), SystemError("own")])
def test_whatever_a_reducer_raises_is_told_with_the_path_to_it(problem: Exception) -> None:
    class Unwilling:
        def __reduce__(self) -> NoReturn:
            raise problem

    with pytest.raises(SerializationError, match=r"argument 1 → \['key'\] .*Unwilling") as caught:
        packed(print, {"key": Unwilling()})
    assert caught.value.__cause__ is problem


def test_the_largest_parts_of_a_call_are_shown() -> None:
    data = {"small": b"x", "large": bytes(3_000_000)}
    tree = largest_parts(print, (data, b"y"), {}, by_value="")
    assert "argument 1: 3.0 MB (dict)" in tree
    assert "['large']: 3.0 MB (bytes)" in tree
    assert "small" not in tree


def test_parts_that_cannot_be_measured_count_as_nothing() -> None:
    assert size_tree({"a": LOCK}, lambda value: None) == "  a: 0.0 MB (_thread.lock)"


plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=10,
)


@given(plain_data)
def test_plain_arguments_arrive_as_they_were(value: Any) -> None:
    call = pickle.loads(packed(print, value, key=value).data)
    assert call["args"] == (value,)
    assert call["kwargs"] == {"key": value}
