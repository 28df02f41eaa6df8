"""Is the ground that a plan is captured on the one it was made for? Told in warnings, never refused."""

from pathlib import Path

from readie_pipeline.console import Terminal
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan
from readie_pipeline.plan_folder import PlanFolder, SpecFingerprint


def tell_skipped(
    terminal: Terminal, folder: PlanFolder, rootfs: Path, plan: Plan, metadata: Metadata
) -> None:
    """Copy the root filesystem's list of what it lacks, and name the checkpoints that need it.

    Raises `OutputError`.
    """
    skipped = folder.take_skipped(rootfs)
    if not skipped:
        return
    terminal.warn(
        f"the root filesystem was built without {', '.join(skipped)}; see {folder.skipped}"
    )
    for number, entry in enumerate(plan.entries, start=1):
        held = metadata.held_by(entry.imports)
        lacking = {metadata.items[name].distribution for name in held}.intersection(skipped)
        if lacking:
            terminal.warn(
                f"checkpoint_{number} needs {', '.join(sorted(lacking))}: it cannot be captured"
            )


def tell_difference(terminal: Terminal, folder: PlanFolder) -> None:
    """For captures in gVisor. Raises `PlanError`."""
    planned, here = folder.read_spec(), SpecFingerprint.here()
    if planned is not None and here is not None and (words := planned.difference(here)):
        terminal.warn(f"since the plan was made, {words}; it is captured as it is here")
