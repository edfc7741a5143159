"""The options of `up`, and those for the deployment that a command is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import JsonLines, Switch, Variables, settings_of

DeploymentOrNone: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--file",
        metavar="FILE",
        help="The deployment file, also as a word alone; not needed where one deployment alone runs.",
    ),
]
State: TypeAlias = Annotated[
    str | None,
    Parameter(metavar="FOLDER", help="Where logs and records are kept; .lmos beside the file unless given."),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """The options of `up`."""

    detach: Annotated[Switch, Parameter(name=["--detach", "-d"])] = False
    """Run in the background: return once all groups are ready."""
    on: Annotated[str | None, Parameter(metavar="PLACE")] = None
    """Where the processes run: this machine, unless it is `ray`, the cluster of Ray to which this machine \
belongs, or `ray://HOST:10001`. It needs the extra ray."""
    reload: Switch = False
    """Restart a group when a file of the project that it has imported changes, while you write it."""
    new_stores: Switch = False
    """Begin anew if a store in a server is not the one that was used before, as its content was lost. \
Else the processes that need it do not start."""
    dry_run: Switch = False
    """Print what would be started or changed, and in which order, and do nothing."""
    quiet: Switch = False
    """Do not print the output of processes: `logs` has it."""
    allow_operations: Switch = False
    """On the page, let all on this machine see what processes print, restart, roll and stop groups, and \
decide what agents ask; groups without `security` let it operate their agents, too. \
With `security` of `launcher.page` its lists say who may."""
    no_page: Switch = False
    """Serve no page for browsers."""
    set_: Variables = None
    state: State = None
    json: JsonLines = False

    @property
    def settings(self) -> dict[str, str]:
        """The variables of the file, by name. Raises ConfigError."""
        return settings_of(self.set_)

    @property
    def at_start_alone(self) -> dict[str, bool]:
        """The options that apply only at the start of a deployment, and whether they were given."""
        return {
            "--new-stores": self.new_stores,
            "--no-page": self.no_page,
            "--allow-operations": self.allow_operations,
        }


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DeploymentOptions:
    """The options for the deployment that a command is about."""

    file: DeploymentOrNone = None
    state: State = None

    def file_among(self, words: list[str] | None) -> tuple[str | None, list[str]]:
        """Return the deployment file, if given by --file or among the words, and the other words: the groups.

        Raises ConfigError for several files.
        """
        found, groups = [] if self.file is None else [self.file], list[str]()
        for word in words or ():
            # Group names have neither dots nor slashes.
            is_file = ("." in word or "/" in word) and "=" not in word
            (found if is_file else groups).append(word)
        if len(found) > 1:
            raise ConfigError(f"one is enough, and there are {len(found)}: {', '.join(found)}", "FILE")
        return (found[0] if found else None), groups
