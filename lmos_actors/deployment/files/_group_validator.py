"""Validation of the groups of a deployment: their agents, needs, addresses and stores.

Nothing is opened: a certificate, a security file or a port may be on another machine. `doctor` checks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.errors import ConfigError
from lmos_actors.files import did_you_mean
from lmos_actors.persistence import SERVER, has_one_writer, store_of
from lmos_actors.security import is_loopback
from lmos_actors.system import GROUPS, NodeValidator, key_of
from lmos_actors.system.model import AgentEntry
from lmos_actors.system.values import texts_at
from lmos_actors.transport import endpoint_of

from ..model import Group, LauncherPage, filled_for, needs_of
from ._group_refs import GroupRefs
from ._launch_plan import endpoints_of, owned_by
from ._node_limits import limit_mistakes
from ._start_validator import StartValidator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames


PAGE: Final = ("launcher", "page")
"""The address of the documentation of deployments."""


class GroupValidator:
    """Validates `groups`; mistakes go to `names`."""

    def __init__(self, names: CellNames) -> None:
        self.names = names
        self._nodes = NodeValidator(names, GROUPS)
        self._groups: dict[str, Group] = {}
        for path, made in names.made.items():
            if isinstance(made, Group) and len(path) == len(("groups", "name")):
                self._groups[str(path[1])] = made
        self._all = list(names.cell.data["groups"]) if isinstance(names.cell.data.get("groups"), dict) else []

    def check(self) -> None:
        """Check all groups."""
        self._nodes.check()
        self._check_placed()
        for name, group in self._groups.items():
            here: DataPath = ("groups", name)
            self._check_content(name, group, here)
            self._check_needs(name, group, here)
            for key in ("register", "lookup"):
                self._check_directories(name, group, key, here)
            self._check_addresses(group, here)
            self._check_store(group, here)
            for path, why, key_is_wrong in limit_mistakes(group):
                self._report((*here, *path), why, key=key_is_wrong)
            self._check_protection(group, here)
            self._check_update(group, here)
        page = self.names.made.get(PAGE)
        if isinstance(page, LauncherPage):
            self._check_addresses(page, PAGE)
            self._check_protection(page, PAGE)
        self._check_circles()
        self._check_shared()
        self._check_keys()
        StartValidator(self.names, self._nodes, self._groups).check()
        GroupRefs(self.names, self._nodes, self._groups).check()

    def _report(self, path: DataPath, why: str, *, key: bool = False) -> None:
        self.names.report(path, why, "shape", key=key)

    # ---- agents

    def _check_placed(self) -> None:
        """Refuse agents that are in no group."""
        for name in self.names.names:
            if name in self.names.remotes or self._nodes.node_of(name) in self._all:
                continue
            near = f', such as "{self._all[0]}"' if len(self._all) == 1 else ""
            why = (
                f'the agent "{name}" is in no group, so nothing runs it: name it in the "agents" of one{near}'
            )
            self.names.report(self.names.places[name], why, key=not self.names.is_of_tree(name))

    def _check_content(self, name: str, group: Group, here: DataPath) -> None:
        if not (group.agents or group.directory or group.relay):
            self._report(
                here, f'the group "{name}" has nothing to run: "agents", a "directory" or a "relay"', key=True
            )

    # ---- what a group needs

    def _check_needs(self, name: str, group: Group, here: DataPath) -> None:
        for need in group.needs:
            path = (*here, "needs", need)
            if need == name:
                self._report(path, f'"{name}" cannot need itself', key=True)
            elif need not in self._all:
                self.names.report(path, f'no group "{need}"{did_you_mean(need, self._all)}', key=True)

    def _check_directories(self, name: str, group: Group, key: str, here: DataPath) -> None:
        hosts = [each for each, other in self._groups.items() if other.directory]
        for text, path in texts_at(getattr(group, key) or (), (*here, key)):
            if "://" in text:
                continue
            if text not in self._all:
                self.names.report(path, f'no group "{text}"{did_you_mean(text, self._all)}, and it is no URL')
            elif text in self._groups and text not in hosts:
                self._report(
                    path, f'the group "{text}" hosts no directory: "directory: true" in it makes one'
                )
            elif text == name and key == "lookup":
                self._report(path, f'"{name}" looks in its own directory anyway')

    def _check_circles(self) -> None:
        """Refuse groups that wait for each other in a circle."""
        needs = {
            name: [need for need in needs_of(group, self._groups) if need in self._groups and need != name]
            for name, group in self._groups.items()
        }
        circle = _circle_of(needs)
        if circle:
            shown = " needs ".join(f'"{each}"' for each in circle)
            self._report(("groups", circle[0]), f"these groups wait for each other: {shown}", key=True)

    # ---- addresses, stores, updates

    def _check_addresses(self, group: Group | LauncherPage, here: DataPath) -> None:
        for url, path in texts_at(group.listen, (*here, "listen")):
            try:
                endpoint = endpoint_of(filled_for(url, 1))
            except ConfigError as error:
                self._report(path, error.message)
                continue
            if endpoint.secure and group.cert is None:
                self._report(path, f'"{url}" needs a certificate: "cert", and "key" if it is in another file')

    def _check_store(self, group: Group, here: DataPath) -> None:
        if group.store is not None:
            try:
                store_of(filled_for(group.store, 1))
            except ConfigError as error:
                self._report((*here, "store"), error.message)

    def _check_protection(self, group: Group | LauncherPage, here: DataPath) -> None:
        if group.cert is None:
            self.names.refuse(group, here, 'goes with "cert"', "key", "client_ca")
        if group.allow_operations:
            self._check_operations(group, here)
        if group.security is not None or group.insecure or group.client_ca is not None:
            return
        for url, endpoint in endpoints_of(group):
            if not is_loopback(endpoint.host):
                why = (
                    f'"{url}" is reached from other machines, and anyone who can reach it can use all: '
                    'set access rules by "security", listen at 127.0.0.1, or allow it by "insecure: true"'
                )
                self._report((*here, "listen"), why)

    def _check_operations(self, group: Group | LauncherPage, here: DataPath) -> None:
        for key, why in (
            ("security", 'the lists "approve" of its "security" say who decides'),
            (
                "client_ca",
                'with "client_ca" clients have names: lists "approve" of a "security" say who decides',
            ),
            (
                "public_url",
                'behind "public_url" a proxy is for others, and it is for clients on this machine',
            ),
        ):
            if getattr(group, key) is not None:
                self._report((*here, "allow_operations"), f"{why}: leave it out", key=True)

    def _check_update(self, group: Group, here: DataPath) -> None:
        """Refuse updates that need two processes where only one is possible."""
        if group.update.order != "start_first":
            return
        path = (*here, "update", "order")
        if group.store is not None and has_one_writer(group.store):
            why = f'with "start_first" two processes would have the store "{group.store}": one at a time may'
            self._report(path, why)
        for url, endpoint in endpoints_of(group):
            if endpoint.port:
                why = f'with "start_first" two processes would listen at "{url}": port 0 finds each its own'
                self._report(path, why)

    def _check_shared(self) -> None:
        """Refuse resources that two processes would share: a port, or the file of a store."""
        first: dict[tuple[str, str], tuple[str, int]] = {}
        for name, group in self._groups.items():
            for key, text in owned_by(group):
                for replica in range(1, max(group.replicas, 1) + 1):
                    own = (key, filled_for(text, replica))
                    other = first.setdefault(own, (name, replica))
                    if other == (name, replica):
                        continue
                    if other[0] == name:
                        why = f'{group.replicas} processes of "{name}" would have "{text}", and one can'
                        fix = f'put "$(replica)" in it{" or use port 0" if key == "listen" else ""}'
                    else:
                        why, fix = f'the group "{other[0]}" has "{own[1]}", too', "each needs its own"
                    self._report(("groups", name, key), f"{why}: {fix}")
                    break

    def _check_keys(self) -> None:
        """Refuse agents that must be unique, if each of several processes would run a copy."""
        for name in self.names.names:
            group = self._nodes.node_of(name)
            key = key_of(name, self.names.agents, self.names.tree)
            if key is None or group not in self._groups or self._groups[group].replicas <= 1:
                continue
            store = self._groups[group].store or ""
            if store.startswith(SERVER) and not has_one_writer(store):  # it decides who runs the agent
                continue
            replicas = self._groups[group].replicas
            spelt_out = isinstance(self.names.agents.get(name), AgentEntry)
            path = ("agents", name, "key") if spelt_out else ("groups", group, "replicas")
            why = (
                f'{replicas} processes of the group "{group}" would each run the agent of the key "{key}", '
                "as each has a store of its own: put the agent in a group with one process, or have a "
                "store that they share, redis://HOST"
            )
            self._report(path, why)


def _circle_of(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return a circle of names: each needs the next, and the last equals the first; () without a circle."""
    done: set[str] = set()
    for first in needs:
        above: list[str] = []
        todo = [(first, iter(needs[first]))] if first not in done else []
        while todo:
            name, rest = todo[-1]
            if name not in above:
                above.append(name)
            need = next(rest, None)
            if need is None:
                todo.pop()
                done.add(above.pop())
            elif need in above:
                return (*above[above.index(need) :], need)
            elif need in needs and need not in done:
                todo.append((need, iter(needs[need])))
    return ()
