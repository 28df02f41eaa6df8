"""The life of a zygote: import, report, fork on request; and the first steps of each clone."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from readie_executor import hygiene, kernel, output
from readie_executor.environment import Surroundings
from readie_executor.freshness import InstalledPackages
from readie_executor.preparing import RefusedError, prepare
from readie_executor.zygote import Zygote
from readie_wire import hooks
from readie_wire.zygotes import encode_line


@dataclass(frozen=True, slots=True)
class Clone:
    """A forked process that is ready to serve a call on its connection."""

    connection: socket.socket
    surroundings: Surroundings


def serve_forks(
    control: socket.socket, names: Sequence[str], surroundings: Surroundings
) -> Clone | None:
    """Import the modules and fork on request. `None` in the zygote, when the worker is gone.

    ``surroundings`` are the zygote's own; its clones get theirs with each request.
    """
    # Imports may hang, so the end of the worker must end this process too. Later the zygote is told
    # by its control connection, and then ends its sandboxes first.
    kernel.die_with_parent()
    surroundings.create()
    surroundings.enter()
    output.configure()
    packages = InstalledPackages.now()
    try:
        prepared = prepare(names)
    except RefusedError as error:
        refusal = {"reason": str(error), "package": error.package, "traceback": error.trace}
        control.sendall(encode_line({"type": "refused", **refusal}))
        return None
    # Once for all clones: whatever a clone writes to is copied first, page by page, which is most
    # of what making one costs.
    hygiene.settle(prepared.baseline)
    surroundings.enter()
    output.configure()
    report = {**prepared.report, "pid": os.getpid()}
    control.sendall(encode_line({"type": "ready", "report": report}))
    kernel.outlive_parent()
    child = Zygote(control, packages).run()
    if child is None:
        return None
    own = Surroundings(child.request.folder, surroundings.variables)
    own.create()
    own.enter()
    hygiene.freshen(prepared.generators)
    hooks.run_after_restore()
    return Clone(child.connection, own)
