"""Interpreters for tests: this one, with modules of a test's own."""

import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path


def interpreter_with(folder: Path, modules: Mapping[str, str]) -> Path:
    """This interpreter, with the packages of the tests' own environment and more modules."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [site_packages] = folder.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (site_packages / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    for name, source in modules.items():
        (site_packages / f"{name}.py").write_text(source)
    return folder / "bin" / "python"
