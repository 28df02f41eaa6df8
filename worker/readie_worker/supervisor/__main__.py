"""``python -m readie_worker.supervisor SILENCE_S``: started by a worker, which writes to its stdin."""

import logging
import signal
import sys

from readie_worker.supervisor.watching import Watch


def main(arguments: list[str]) -> int:
    """Until the worker is gone. It outlives the signals that end the worker: those are the point."""
    logging.basicConfig(level=logging.INFO, format="readie_worker.supervisor: %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Watch(sys.stdin.fileno(), float(arguments[0])).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
