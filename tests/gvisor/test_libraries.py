"""Libraries that want more of a system than most work in clones: threads, processes, fonts, locks."""

import importlib.util
from typing import Any

import pytest

from support.requirements import require_part
from support.sandbox_kits import Bench


@pytest.fixture(autouse=True)
def _the_libraries() -> None:
    names = ("numpy", "pandas", "sklearn", "matplotlib")
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    require_part("numpy, pandas, scikit-learn, matplotlib", not missing, "`make install`")


async def ask(bench: Bench, function: Any, *imports: str) -> Any:
    """What the function returns in a clone that has imported these."""
    running = await bench.start(await bench.checkpoint(*imports))
    return (await running.driver.call(function)).value


async def test_a_plot_is_drawn_without_a_display(bench: Bench) -> None:
    def plot() -> bytes:
        import io

        import matplotlib.pyplot as plt

        plt.plot([1, 2])
        plt.title("ž")
        drawn = io.BytesIO()
        plt.savefig(drawn)
        return drawn.getvalue()[:4]

    assert await ask(bench, plot, "matplotlib.pyplot") == b"\x89PNG"


async def test_joblib_runs_processes(bench: Bench) -> None:
    def run() -> list[int]:
        from joblib import Parallel, delayed

        found: list[int] = Parallel(2)(delayed(abs)(number) for number in (-1, -2))
        return found

    assert await ask(bench, run, "sklearn") == [1, 2]


async def test_a_model_is_fitted_with_threads_that_start_after_the_restore(bench: Bench) -> None:
    def fit() -> tuple[float, float]:
        import numpy as np
        from sklearn.linear_model import LinearRegression

        rows = np.arange(20_000.0).reshape(-1, 2)
        score = LinearRegression().fit(rows, rows @ [1.0, 2.0]).score(rows, rows @ [1.0, 2.0])
        square = np.ones((500, 500))
        return float(score), float((square @ square).sum())

    score, total = await ask(bench, fit, "numpy", "pandas", "sklearn.linear_model")

    assert score == pytest.approx(1.0)
    assert total == 500.0**3


async def test_a_file_is_written_and_read_by_pandas(bench: Bench) -> None:
    def write_and_read() -> int:
        import pandas as pd

        pd.DataFrame({"a": range(1000)}).to_csv("mine.csv")
        return int(pd.read_csv("mine.csv").a.sum())

    assert await ask(bench, write_and_read, "pandas") == 499_500
