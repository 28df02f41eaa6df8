"""Takes the network from measured processes, and says how, or that it cannot."""

from collections.abc import Sequence

from readie_pipeline.console import Terminal
from readie_pipeline.measure.interpreter import network_off


def offline_wrapper(terminal: Terminal) -> Sequence[str]:
    """What goes before a command to run it without network; empty, with a warning, when nothing does."""
    wrapper = network_off()
    if wrapper is None:
        terminal.warn("packages are measured with the network on: `unshare --net` is refused here")
        return ()
    alone = ", each among processes of its own" if "--pid" in wrapper else ""
    terminal.note(f"packages are measured without a network{alone}")
    return wrapper
