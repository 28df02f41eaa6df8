"""What the operator sees: results on stdout, progress on stderr, a line a minute without a terminal."""

from collections.abc import Generator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from readie_pipeline.progress import LineProgress

_EVERY_S = 60.0  # between lines of progress in a log: an hour of work is an hour of silence without
_FILE_WIDTH = 160  # columns of a table that goes to a file or a pipe


class Terminal:
    """Where commands write. ``out`` is for results, ``err`` for progress and warnings."""

    def __init__(self) -> None:
        self.out = Console(highlight=False, soft_wrap=True)
        if not self.out.is_terminal:
            self.out = Console(highlight=False, soft_wrap=True, width=_FILE_WIDTH)
        self.err = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str = "") -> None:
        self.out.print(shown(text), markup=False)

    def note(self, text: str) -> None:
        """How it goes, for people; not a result."""
        self.err.print(shown(text), markup=False)

    def warn(self, text: str) -> None:
        self.err.print(f"warning: {shown(text)}", markup=False, style="yellow")

    def track(self, names: Sequence[str], doing: str) -> Generator[str, None, None]:
        """Go through ``names`` with a bar that shows the present one and the time that is left."""
        if not self.err.is_terminal:
            yield from LineProgress(self.note, _EVERY_S).track(names, doing)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.err, transient=True) as progress:
            task = progress.add_task(doing, total=len(names))
            for name in names:
                progress.update(task, description=f"{doing} {name}")
                yield name
                progress.advance(task)


def shown(text: str) -> str:
    """Names of files and what packages say may hold what a terminal would take for orders."""
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def short(imports: Sequence[str], limit: int = 8) -> str:
    """A list of modules for one line."""
    more = f", and {len(imports) - limit} more" if len(imports) > limit else ""
    return ", ".join(imports[:limit]) + more


def counted(number: int, noun: str) -> str:
    """``1 request``, ``2 requests``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
