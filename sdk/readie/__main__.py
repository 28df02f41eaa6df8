"""``python -m readie``: the ``readie`` command."""

from readie._cli import main

if __name__ == "__main__":
    main()
