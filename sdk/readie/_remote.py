"""``@remote``: a function that runs on a worker when it is called."""

import functools
import inspect
import operator
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from readie import _settings
from readie._call import Call
from readie._client import Client, Job, default_client
from readie._errors import ConfigurationError
from readie._imports import ImportScan
from readie._locality import Origin, locate
from readie._loops import refuse_in_coroutine
from readie._options import OpenSession, Options, checked

P = ParamSpec("P")
R = TypeVar("R")


class RemoteFunction(Generic[P, R]):
    """A function that runs remotely when called; name, signature and ``__wrapped__`` are kept.

    Inside a sandbox, and wherever it is pickled to, it is the plain function: a remote function
    that calls itself or another one does so locally.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Mapping[str, Any],
        client: Client | None = None,
        *,
        bound: tuple[Any, ...] = (),
    ) -> None:
        self._function = function
        self._options = dict(options)
        self._client = client
        self._bound = bound
        self._by_value = _module_by_value(function)
        self._scan = ImportScan(function, self._by_value)
        functools.update_wrapper(self, function)
        if bound:
            self.__signature__ = inspect.signature(function.__get__(bound[0]))

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run on a worker and wait. What the function prints appears on stderr as it comes.

        Raises what the function raised, or a `ReadieError`.
        """
        refuse_in_coroutine(f"{self._label}()", f"await {self._label}.aio()")
        return cast(R, self._chosen_client.run(self._job(args, kwargs)))

    async def aio(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As a plain call, for coroutines."""
        return cast(R, await self._chosen_client.run_async(self._job(args, kwargs)))

    def spawn(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Start the call without waiting for it."""
        refuse_in_coroutine(f"{self._label}.spawn()", f"await {self._label}.aspawn()")
        return cast(Call[R], self._chosen_client.spawn(self._job(args, kwargs)))

    async def aspawn(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """As `spawn`, for coroutines."""
        return cast(Call[R], await self._chosen_client.spawn_async(self._job(args, kwargs)))

    def local(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the plain function here; of an ``async def`` that gives a coroutine."""
        return self._function(*self._bound, *args, **kwargs)

    def bind(
        self, *, client: Client | None = None, **options: Unpack[Options]
    ) -> "RemoteFunction[P, R]":
        """The same function with other options on top of its own."""
        merged = self._options | checked(options)
        return RemoteFunction(self._function, merged, client or self._client, bound=self._bound)

    def explain(self, /, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """What the service expects this call to need and to cost, without running it."""
        refuse_in_coroutine(f"{self._label}.explain()", "a thread")
        return self._chosen_client.explain(self._job(args, kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> "RemoteFunction[..., R]":
        """On a method: the instance travels along."""
        if instance is None or not hasattr(self._function, "__get__"):
            return self
        return RemoteFunction(self._function, self._options, self._client, bound=(instance,))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Pickled as the plain function: where it arrives there may be no service to call."""
        if self._bound:
            return functools.partial, (self._function, *self._bound)
        return operator.getitem, ((self._function,), 0)  # as itself, without an import of ours

    def __repr__(self) -> str:
        return f"<readie.RemoteFunction {self._label}>"

    @property
    def _label(self) -> str:
        return str(getattr(self._function, "__qualname__", self._function))

    @property
    def _chosen_client(self) -> Client:
        if self._client is None and (session := self._session) is not None:
            return session.client
        return self._client or default_client()

    @property
    def _session(self) -> OpenSession | None:
        session = self._options.get("session")
        return None if session is None or isinstance(session, str) else cast(OpenSession, session)

    def _job(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        everything = (*self._bound, *args)
        findings, options = self._scan.findings(), self._options
        if (session := self._session) is not None:
            options = {**options, "session": session.id}
        label = self._label
        return Job(label, self._function, everything, kwargs, options, findings, self._by_value)


@overload
def remote(function: Callable[P, Coroutine[Any, Any, R]], /) -> RemoteFunction[P, R]: ...
@overload
def remote(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...
@overload
def remote(
    *, client: Client | None = None, **options: Unpack[Options]
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...
def remote(
    function: Callable[..., Any] | None = None,
    /,
    *,
    client: Client | None = None,
    **options: Unpack[Options],
) -> Any:
    """Make a function run on a worker when it is called: ``@remote`` or ``@remote(memory="2G")``.

    Works on functions, ``async`` functions, methods, lambdas, ``functools.partial`` objects and
    functions under ``functools.lru_cache``. Raises `ConfigurationError` for unknown options and
    for what cannot be run remotely.
    """
    chosen = checked(options)

    def decorate(target: Callable[..., Any]) -> Any:
        _check_target(target)
        if _settings.in_sandbox():
            return target
        return RemoteFunction(target, chosen, client)

    return decorate if function is None else decorate(function)


def _check_target(target: object) -> None:
    if isinstance(target, classmethod | staticmethod):
        kind = type(target).__name__
        raise ConfigurationError(f"put @remote under @{kind}, next to the function")
    if isinstance(target, type):
        raise ConfigurationError(f"{target.__qualname__} is a class: put @remote on its methods")
    if isinstance(target, RemoteFunction):
        raise ConfigurationError(f"{target!r} is remote already: use bind(…) for other options")
    if not callable(target):
        raise ConfigurationError(f"@remote needs a function, not {target!r}")
    plain = inspect.unwrap(target)
    while isinstance(plain, functools.partial):
        plain = plain.func
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        name = getattr(plain, "__qualname__", plain)
        raise ConfigurationError(
            f"{name}: generator functions are not supported yet; return a list"
        )


def _module_by_value(function: object) -> str:
    """The local module that defines ``function``: like a script, it is not imported remotely."""
    plain = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    name = getattr(plain, "__module__", None) or ""
    if not name:
        return ""
    place = locate(name)
    return name if place.origin is Origin.LOCAL and not place.is_package else ""
