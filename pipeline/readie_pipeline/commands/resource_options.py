"""Options that say where datasets, models and tokenizers lie on this machine."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from readie_pipeline.measure.locating import Places, parted


class ResourcePath(click.ParamType[tuple[str, Path]]):
    """``model:gpt2=/models/gpt2``."""

    name = "KIND:NAME=PATH"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path]:
        item, _, path = value.rpartition("=")
        try:
            parted(item)
        except ValueError:
            self.fail(
                f"{value!r} does not name a resource; give model:NAME=PATH, dataset:NAME=PATH or "
                "tokenizer:NAME=PATH",
                param,
                ctx,
            )
        return item, Path(path).absolute()


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(home).expanduser() / "hub"


def resource_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``places``, a `Places`."""

    @click.option(
        "--resource",
        "given",
        type=ResourcePath(),
        multiple=True,
        help="Where a model, dataset or tokenizer lies that is in no cache; once for each.",
    )
    @click.option(
        "--hub-cache",
        type=click.Path(path_type=Path, file_okay=False),
        default=_hub_cache,
        envvar="HF_HUB_CACHE",
        help="Cache of the Hugging Face hub's client.  [default: $HF_HOME/hub]",
    )
    @click.option(
        "--kaggle-cache",
        type=click.Path(path_type=Path, file_okay=False),
        default=lambda: Path("~/.cache/kagglehub").expanduser(),
        envvar="KAGGLEHUB_CACHE",
        help="Cache of Kaggle's client.  [default: ~/.cache/kagglehub]",
    )
    @functools.wraps(command)
    def placed(
        *arguments: Any,
        given: tuple[tuple[str, Path], ...],
        hub_cache: Path,
        kaggle_cache: Path,
        **options: Any,
    ) -> Any:
        return command(*arguments, places=Places(hub_cache, kaggle_cache, dict(given)), **options)

    described: Callable[..., Any] = placed
    return described
