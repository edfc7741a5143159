"""Print the command that a README marks with `<!-- command: NAME -->`.

Usage: readme_command.py README.md NAME. It runs before anything is installed, on the standard library alone.
"""

import re
import sys
from pathlib import Path


def command(text: str, name: str) -> str:
    """Give the one command in the shell block right after the marker, or exit if there is not exactly one."""
    found = re.findall(rf"^<!-- command: {re.escape(name)} -->\n```sh\n(.+)\n```$", text, re.MULTILINE)
    if len(found) != 1:
        raise SystemExit(f"the README should mark one command {name!r}, it marks {len(found)}")
    return str(found[0])


if __name__ == "__main__":
    print(command(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2]))
