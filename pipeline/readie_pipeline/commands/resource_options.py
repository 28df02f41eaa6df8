"""Options that say where datasets, models and tokenizers lie on this machine."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from readie_pipeline.measure.locating import Places, parted


class ResourcePath(click.ParamType[tuple[str, Path | None]]):
    """``model:gpt2=/models/gpt2``, or ``model:gpt2`` for what lies in a cache."""

    name = "KIND:NAME[=PATH]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path | None]:
        item, _, path = value.partition("=")
        try:
            parted(item)
        except ValueError:
            self.fail(
                f"{value!r} does not name a resource; give model:NAME, dataset:NAME or "
                "tokenizer:NAME, with =PATH where it lies in no cache",
                param,
                ctx,
            )
        return item, Path(path).absolute() if path else None


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
        help="A model, dataset or tokenizer to measure, and where it lies when it is in no cache.",
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
    @click.option(
        "--sklearn-data",
        type=click.Path(path_type=Path, file_okay=False),
        default=lambda: Path("~/scikit_learn_data").expanduser(),
        envvar="SCIKIT_LEARN_DATA",
        help="What scikit-learn has fetched.  [default: ~/scikit_learn_data]",
    )
    @functools.wraps(command)
    def placed(
        *arguments: Any,
        given: tuple[tuple[str, Path | None], ...],
        hub_cache: Path,
        kaggle_cache: Path,
        sklearn_data: Path,
        **options: Any,
    ) -> Any:
        return command(
            *arguments, places=Places(hub_cache, kaggle_cache, sklearn_data, dict(given)), **options
        )

    described: Callable[..., Any] = placed
    return described
