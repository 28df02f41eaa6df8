"""``python -m readie_pipeline``: the same as ``readie-pipeline``."""

from readie_pipeline.cli import main

main()
