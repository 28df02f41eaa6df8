"""What the call sees around it: environment variables, private folders, working directory."""

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Names with which the executor itself is started; they say nothing to the function.
_OWN_NAMES = ("READIE_", "EXECUTOR_")
_LOCALE_NAMES = ("LC_ALL", "LC_CTYPE")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A sandbox's private folders and the environment every call in it begins with."""

    folder: str
    variables: Mapping[str, str]

    @property
    def home(self) -> str:
        return f"{self.folder}/home"

    @property
    def temporary(self) -> str:
        return f"{self.folder}/tmp"  # noqa: S108 - inside the private folder

    @property
    def work(self) -> str:
        return f"{self.folder}/work"

    def create(self) -> None:
        """Make the folders; those that are there already are kept."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib stays unloaded
        for path in (self.home, self.temporary, self.work):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)  # noqa: PTH102

    def enter(self) -> None:
        """Replace the process's environment and working directory by a fresh call's."""
        replace_environment(self._base())
        os.chdir(self.work)

    def enter_call(
        self,
        call_id: str,
        given: Mapping[str, str],
        secrets: Mapping[str, str],
        workdir: str | None,
    ) -> None:
        """The environment of one call: the base, then the caller's variables, then secrets."""
        own = {"READIE_IN_SANDBOX": "1", "READIE_CALL_ID": call_id}
        replace_environment({**self._base(), **given, **secrets, **own})
        os.chdir(workdir or self.work)

    def go_on(self, call_id: str, given: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        """The next call of a session: the environment is as the last one left it, with these added."""
        os.environ.update({**given, **secrets, "READIE_CALL_ID": call_id})
        time.tzset()

    def _base(self) -> dict[str, str]:
        interpreters = sys.executable.rpartition("/")[0]
        return {
            "PATH": f"{interpreters}:{SYSTEM_PATH}",
            "USER": "readie",
            "LOGNAME": "readie",
            **self.variables,
            "LANG": "C.UTF-8",
            "HOME": self.home,
            "TMPDIR": self.temporary,
            "MPLBACKEND": "Agg",
            "MPLCONFIGDIR": f"{self.home}/.config/matplotlib",
            "READIE_IN_SANDBOX": "1",
        }


def remove_if_empty(folder: str) -> bool:
    """Remove a sandbox's folders where nothing is left in them; whether that was all of them.

    Most calls write no file, and walking the tree as `shutil.rmtree` does takes three times as long.
    """
    own = Surroundings(folder, {})
    try:
        for path in (own.home, own.temporary, own.work, folder):
            os.rmdir(path)  # noqa: PTH106 - pathlib stays unloaded
    except OSError:
        return False
    return True


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """What whoever started the executor meant for the calls.

    Left out are the executor's own names, and the locale's: LANG decides, while the interpreter sets
    LC_CTYPE by itself when it is started without any.
    """
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_OWN_NAMES) and name not in _LOCALE_NAMES
    }


def replace_environment(variables: Mapping[str, str]) -> None:
    """Write what differs: a clone has most of it from its zygote, and pays for each page it touches."""
    zone = os.environ.get("TZ")
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    if variables.get("TZ") != zone:
        time.tzset()
