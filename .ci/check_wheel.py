"""Fail unless the wheel holds the package and its metadata, and nothing else.

Usage: check_wheel.py FILE.whl
"""

import sys
from pathlib import PurePosixPath
from zipfile import ZipFile

names = [PurePosixPath(name) for name in ZipFile(sys.argv[1]).namelist()]
mine = {name for name in names if name.parts[0] == "lmos_actors" or name.parts[0].endswith(".dist-info")}
strange = [str(name) for name in names if name not in mine]
if strange:
    raise SystemExit(f"in the wheel but not of the package: {', '.join(strange)}")
schema = "lmos_actors/protocol/td/td-json-schema-validation"
needed = (
    "lmos_actors/py.typed",
    f"{schema}.json",
    f"{schema}.license.txt",
    "lmos_actors/cli/templates/weather/pyproject.toml.txt",
    f"{schema}.origin.txt",
)
needed += tuple(f"lmos_actors/reports/page/{name}" for name in ("page.html", "style.css", "app.js"))
needed += tuple(f"lmos_actors/conformance/card/page/card.{kind}" for kind in ("html", "css", "js"))
for name in needed:
    if PurePosixPath(name) not in names:
        raise SystemExit(f"the wheel lacks {name}")
print(f"{len(names)} files, all of the package")
