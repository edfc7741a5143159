"""The commands `up`, `status`, `logs`, `restart`, `scale`, `drain`, `down` and `export`.

Their docstrings are their help texts.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import Json, Switch, whole
from ..options._deployment import DeploymentOptions, DeploymentOrNone, State, UpOptions
from ..options._export import ExportFlags

MOST_REPLICAS: Final = 1_000
"""Maximum processes of a group, as in deployment files, whose module is imported only when it is needed."""

Groups: TypeAlias = Annotated[list[str] | None, Parameter(name="FILE|GROUP", negative=())]


_USUAL = UpOptions()
_ANY = DeploymentOptions()
_PLAIN = ExportFlags()


def up(file: Annotated[str, Parameter(name="FILE")], /, *, options: UpOptions = _USUAL) -> int:
    """Run the groups of a deployment file as processes, and keep them running.

    lmos-actors up desk.yaml

    lmos-actors up desk.yaml --detach

    lmos-actors up desk.yaml --on ray

    lmos-actors up desk.yaml --allow-operations

    Then, elsewhere: lmos-actors status; lmos-actors restart --rolling weather; lmos-actors down

    Groups start in the order in which they need each other. A process that ends is started again, until \
it has ended too often; then its supervisor acts as the file says. If the launcher dies, however it \
dies, the processes drain and end by themselves.

    Where it runs already, `up` says what has changed in the file, and does it: groups that are new start, \
those that have changed are replaced one process after another, or are as they were if the new ones do not \
become ready.

    It prints the address of a page for browsers, which shows the groups, their processes and the pages \
of these. Those whom `launcher.page` of the file lets log in see and may do more; without it, all on this \
machine with --allow-operations.

    Ctrl-C or SIGTERM stops in order: groups drain in reverse order. A second one ends all at once.

    Exit codes: 0 stopped in order; 2 the file or the usage is wrong; 3 an import failed, groups failed too \
often, or it runs already; 130 ended at once.

    Parameters
    ----------
    file
        A deployment file, `lmos: deployment/v1`.
    """
    from ..deploy._up import run_up

    return run_up(file, options)


def status(
    file: DeploymentOrNone = None,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """Show the processes of a deployment that runs, or which deployments run.

    lmos-actors status

    lmos-actors status desk.yaml --json

    Exit codes: 0; 2 the usage is wrong; 3 it does not run.
    """
    from ..deploy._requests import show_status

    return show_status(file, state, json=json)


def logs(
    groups: Groups = None,
    /,
    *,
    follow: Annotated[Switch, Parameter(name=["--follow", "-f"])] = False,
    last: Annotated[int, Parameter(converter=whole, name=["--last", "-n"], metavar="N")] = 20,
    which: DeploymentOptions = _ANY,
) -> int:
    """Print what the processes of a deployment have printed.

    lmos-actors logs --follow

    lmos-actors logs desk.yaml weather -n 100

    Exit codes: 0; 1 no such group; 2 the usage is wrong; 3 it does not run; 130 interrupted.

    Parameters
    ----------
    groups
        The groups, all if none is given; before them the file.
    follow
        Continue with new lines as they come.
    last
        How many earlier lines of each process to print.
    """
    from ..deploy._requests import controls_for, show_logs

    file, groups = which.file_among(groups)
    return show_logs(controls_for(file, which.state, groups), groups, last=last, follow=follow)


def restart(
    groups: Groups = None,
    /,
    *,
    rolling: Switch = False,
    which: DeploymentOptions = _ANY,
) -> int:
    """Restart groups of a deployment, all at once or one process after another.

    lmos-actors restart --rolling desk.yaml weather

    With --rolling a process takes no new requests, ends its present ones, and is replaced; the next one \
follows once the new one is ready. One that does not become ready is stopped, and the others stay as they are.

    Exit codes: 0; 1 no such group, or a process did not become ready; 2 the usage is wrong; \
3 it does not run.

    Parameters
    ----------
    groups
        The groups, all if none is given; before them the file.
    rolling
        Replace one process after another, as `update` of the group says.
    """
    from ..deploy._requests import controls_for, restart as run

    file, groups = which.file_among(groups)
    return run(controls_for(file, which.state, groups), groups, rolling=rolling)


def scale(
    counts: Annotated[list[str], Parameter(name="FILE|GROUP=N", negative=())],
    /,
    *,
    which: DeploymentOptions = _ANY,
) -> int:
    """Run more or fewer processes of a group.

    lmos-actors scale desk.yaml weather=4

    N is from 0 to 1000. Surplus processes, those with the highest numbers, drain and end.

    Exit codes: 0; 1 no such group, it cannot have so many, or a process did not become ready; \
2 the usage is wrong; 3 it does not run.

    Parameters
    ----------
    counts
        A group, and how many processes it is to have; several are brought to their numbers in turn; before \
them the file.
    """
    from ..deploy._requests import controls_for, scale as run

    file, counts = which.file_among(counts)
    if not counts:
        raise ConfigError("say which, as in weather=4", "GROUP=N")
    found: dict[str, int] = {}
    for text in counts:
        group, equals, number = text.partition("=")
        if not equals or not group or not (number.isascii() and number.isdecimal()):
            raise ConfigError(f'"{text}" is not GROUP=N, as in weather=4', "GROUP=N")
        if len(number) > 100 or int(number) > MOST_REPLICAS:  # more digits are not even parsed
            raise ConfigError(f'"{text}": a group has at most {MOST_REPLICAS} processes', "GROUP=N")
        found[group] = int(number)
    return run(controls_for(file, which.state, found), found)


def drain(
    groups: Annotated[list[str], Parameter(name="FILE|GROUP", negative=())],
    /,
    *,
    which: DeploymentOptions = _ANY,
) -> int:
    """Stop the processes of groups in order; `restart` or `up` starts them again.

    lmos-actors drain desk.yaml weather

    Exit codes: 0; 1 no such group; 2 the usage is wrong; 3 it does not run.

    Parameters
    ----------
    groups
        The groups, in the order in which they stop; before them the file.
    """
    from ..deploy._requests import controls_for, drain as run

    file, groups = which.file_among(groups)
    if not groups:
        raise ConfigError("say which", "GROUP")
    return run(controls_for(file, which.state, groups), groups)


def down(
    file: DeploymentOrNone = None,
    *,
    state: State = None,
) -> int:
    """End a deployment in order: all its groups, and its launcher.

    lmos-actors down desk.yaml

    Exit codes: 0 it has ended, or did not run; 1 processes go on after their launcher; \
2 the usage is wrong; 3 its launcher does not answer.
    """
    from ..deploy._requests import down as run

    return run(file, state)


def export(
    kind: Annotated[Literal["systemd", "compose", "procfile", "k8s"], Parameter(name="FORMAT")],
    file: Annotated[str, Parameter(name="FILE")],
    /,
    *,
    options: ExportFlags = _PLAIN,
) -> int:
    """Write a deployment in the format of another supervisor: systemd, Compose, a Procfile, Kubernetes.

    lmos-actors export systemd desk.yaml --out units

    lmos-actors export k8s desk.yaml --image registry.example/desk:1.4 > desk-k8s.yaml

    Each process is lmos-actors serve FILE --group GROUP --replica N there. What a format does not express \
is said on standard error, line by line, and in the files. Secrets are references: to variables, and to files.

    Exit codes: 0; 2 the file or the usage is wrong, or it cannot be exported so; 3 an import failed.

    Parameters
    ----------
    kind
        systemd: units; compose: compose.yaml; procfile: Procfile; k8s: manifests.
    file
        A deployment file, `lmos: deployment/v1`.
    """
    from ..deploy._export import export as run

    return run(kind, file, options)
