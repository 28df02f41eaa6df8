"""Datasets, models and tokenizers that code names, found without running it."""

import pytest

from readie_pipeline.corpus.finding import MAX_NAMES, Named, find_named


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("from datasets import load_dataset\nload_dataset('squad', 'v1')", Named(("squad",))),
        ("import datasets as d\nd.load_dataset(path='owner/set')", Named(("owner/set",))),
        ("import datasets\ndatasets.load_dataset('csv', data_files='x.csv')", Named()),
        ("from datasets import load_dataset\nload_dataset('./own.py')", Named()),
        ("import seaborn as sns\nsns.load_dataset('tips')", Named()),
        (
            "from transformers import AutoModel\nAutoModel.from_pretrained('gpt2')",
            Named((), ("gpt2",)),
        ),
        (
            "import transformers\ntransformers.AutoTokenizer.from_pretrained('gpt2')",
            Named((), (), ("gpt2",)),
        ),
        (
            "from transformers import BertTokenizerFast as T\nT.from_pretrained('bert')",
            Named((), (), ("bert",)),
        ),
        ("X.BertTokenizerFast.from_pretrained('bert')", Named((), (), ("bert",))),
        ("from transformers import AutoConfig\nAutoConfig.from_pretrained('gpt2')", Named()),
        ("AutoModel.from_pretrained('/kaggle/input/model')", Named()),
        ("AutoModel.from_pretrained('../up')", Named()),
        ("AutoModel.from_pretrained(f'{x}/y')", Named()),
        ("NAME = 'gpt2'\nAutoModel.from_pretrained(NAME)", Named((), ("gpt2",))),
        ("NAME = 'a'\nNAME = 'b'\nAutoModel.from_pretrained(NAME)", Named()),
        ("NAME = pick()\nAutoModel.from_pretrained(NAME)", Named()),
        (
            (
                "from sentence_transformers import SentenceTransformer\n"
                "SentenceTransformer('all-MiniLM-L6-v2')"
            ),
            Named((), ("sentence-transformers/all-MiniLM-L6-v2",)),
        ),
        (
            (
                "from transformers import pipeline\n"
                "pipeline('ner', model='owner/ner', tokenizer='owner/tok')"
            ),
            Named((), ("owner/ner",), ("owner/tok",)),
        ),
        ("def pipeline(*a): ...\npipeline('ner', 'gpt2')", Named()),
        (
            (
                "from huggingface_hub import snapshot_download\n"
                "snapshot_download('o/a'); snapshot_download(repo_id='o/b', repo_type='dataset')"
            ),
            Named(("o/b",), ("o/a",)),
        ),
        (
            "import kagglehub\nkagglehub.dataset_download('owner/set/versions/3')",
            Named(("kaggle:owner/set",)),
        ),
        (
            "from sklearn.datasets import fetch_california_housing as f, load_iris\nf(); load_iris()",
            Named(("sklearn:california_housing", "sklearn:iris")),
        ),
        ("from sklearn import datasets\ndatasets.fetch_rcv1()", Named(("sklearn:rcv1",))),
        ("AutoModel.from_pretrained('x'\n", Named()),
    ],
)
def test_names_are_found_where_they_are_constants(code: str, named: Named) -> None:
    assert find_named([code]) == named


def test_what_one_cell_imports_counts_in_the_next() -> None:
    cells = ["from datasets import load_dataset", "NAME = 'squad'", "load_dataset(NAME)"]
    assert find_named(cells) == Named(("squad",))


def test_what_is_found_is_bounded() -> None:
    code = "\n".join(f"M.from_pretrained('m{number}')" for number in range(MAX_NAMES + 50))
    assert len(find_named([code]).models) == MAX_NAMES
    assert find_named(["(" * 10_000, "x = " + "[" * 5_000, "M.from_pretrained('\0')"]) == Named()
