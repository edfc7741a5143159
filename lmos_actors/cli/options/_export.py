"""The options of `export`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - the application reads the types
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import Force, Variables, settings_of, whole

if TYPE_CHECKING:
    from lmos_actors.deployment.export import ExportOptions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExportFlags:
    """The options of `export`."""

    out: Annotated[Path | None, Parameter(metavar="FOLDER")] = None
    """The folder for the files; they are printed unless it is given."""
    force: Force = False
    root: Annotated[str | None, Parameter(metavar="FOLDER")] = None
    """The folder of the project where it will run; unless given, in a container /app, else where it is \
now."""
    command: Annotated[str | None, Parameter(metavar="PATH")] = None
    """The command lmos-actors where it will run; unless given, with systemd the one that runs now."""
    user: Annotated[str | None, Parameter(metavar="USER")] = None
    """Who runs it: a name for systemd, in a container the number of a user, 10001 unless given."""
    image: Annotated[str | None, Parameter(metavar="NAME")] = None
    """The image of containers, which has the project in its folder; NAME:latest unless given."""
    port: Annotated[int, Parameter(converter=whole, metavar="N")] = 8080
    """The port of groups that listen at a free one: of all in containers, else of directories, from it on."""
    storage: Annotated[str, Parameter(metavar="SIZE")] = "1Gi"
    """With Kubernetes the size of a volume for state."""
    set_: Variables = None

    def export_options(self) -> ExportOptions:
        """Return the options for making the files. Raises ConfigError."""
        from lmos_actors.deployment.export import ExportOptions

        if not 0 < self.port < 65_536:
            raise ConfigError("must be from 1 to 65535", "--port")
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?([KMGTPE]i?)?", self.storage) is None:
            why = f'"{self.storage}" is not a size of Kubernetes, such as 512Mi or 10Gi'
            raise ConfigError(why, "--storage")
        return ExportOptions(
            out=self.out,
            root=self.root,
            command=self.command,
            user=self.user,
            image=self.image,
            port=self.port,
            storage=self.storage,
            settings=settings_of(self.set_),
        )
