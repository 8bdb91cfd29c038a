"""``python -m ingot``: the ``ingot`` command."""

from ingot.cli.app import main

if __name__ == "__main__":
    main()
