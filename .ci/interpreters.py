"""Print every Python from 3.11 on that is here and starts, one of each version: `3.12 /usr/bin/python3.12`.

Usage: interpreters.py. Looks along PATH, then where pyenv and uv keep theirs: what pyenv puts on PATH starts
only for the version that is chosen there. It needs nothing but the standard library.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

OLDEST = 11
NEWEST = 30
NEEDED = "import ensurepip, sqlite3, ssl, sys, venv; print('%d.%d' % sys.version_info[:2])"
SECONDS = 30


def candidates(name: str) -> Iterator[Path]:
    """Return where an interpreter of that name may be, those on PATH first."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder) / name
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    for kept in (pyenv / "versions", uv):
        yield from sorted(kept.glob(f"*/bin/{name}"), reverse=True)


def starts_as(path: Path, version: str) -> bool:
    """Return whether that is an interpreter of that version, with all that the suite takes from it."""
    if not os.access(path, os.X_OK):
        return False
    try:
        ran = subprocess.run(
            [path, "-c", NEEDED], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ran.returncode == 0 and ran.stdout.strip() == version


def interpreters() -> dict[str, Path]:
    """Return one interpreter of each version that is here, the oldest first."""
    found: dict[str, Path] = {}
    for minor in range(OLDEST, NEWEST):
        version = f"3.{minor}"
        path = next((each for each in candidates(f"python{version}") if starts_as(each, version)), None)
        if path is not None:
            found[version] = path
    return found


if __name__ == "__main__":
    for version, path in interpreters().items():
        print(version, path)
