"""`python -m lmos_actors` is the command `lmos-actors`."""

from lmos_actors.cli import main

if __name__ == "__main__":
    main()
