"""``python -m ingot``: the ``ingot`` command. Knows nothing else."""

from ingot.cli.commands import main

if __name__ == "__main__":
    main()
