"""The command `lmos-actors`, as run by `python -m lmos_actors`."""

import sys

from lmos_actors._versions import OLDEST, TESTED

if __name__ == "__main__":
    if sys.version_info < OLDEST:  # pip refuses an older Python, but in a checkout any can be called
        running = ".".join(map(str, sys.version_info[:3]))
        print(f"lmos-actors: needs Python {TESTED}, and this is Python {running}", file=sys.stderr)
        sys.exit(2)

    from lmos_actors.cli import main

    main()
