"""The options for the output of report cards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from .._app import File, Force, Switch  # noqa: TC001 - the application reads the types

OUTPUT = Group("Output", sort_key=2)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The options for output: its form, its files, and its level of detail."""

    json: Annotated[
        bool | str, Parameter(negative=(), metavar="[FILE]", group=OUTPUT, show_default=False)
    ] = False
    """Print the report card as JSON, and nothing else; or write it to a file."""
    junit: Annotated[File, Parameter(group=OUTPUT)] = None
    """Write JUnit XML."""
    html: Annotated[File, Parameter(group=OUTPUT)] = None
    """Write one HTML file that needs no network."""
    force: Annotated[Force, Parameter(group=OUTPUT)] = False
    verbose: Annotated[Switch, Parameter(name=["-v", "--verbose"], group=OUTPUT)] = False
    """Print a line for every case, and the traffic of those that did not pass."""
    list_: Annotated[Switch, Parameter(name="--list", group=OUTPUT)] = False
    """Print the cases, and try none."""

    @property
    def printed(self) -> bool:
        """Whether JSON is the only output."""
        return self.json is True

    @property
    def card_files(self) -> dict[str, str | None]:
        """The files to write, by option."""
        file = self.json if isinstance(self.json, str) else None
        return {"--json": file, "--junit": self.junit, "--html": self.html}
