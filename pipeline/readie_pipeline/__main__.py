"""``python -m readie_pipeline``: the same as ``readie-pipeline``."""

from readie_pipeline.cli import main

if __name__ == "__main__":
    main()
