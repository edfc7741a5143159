"""Validation of refs from one group to another: whether each leads to an agent that its holder can ask.

A ref that a file or a tree gives to an agent is looked up by name in the directories of the agent's group.
Lookups in code, such as `find`, are not checked. A directory outside the file is assumed to list any agent.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec import UNSET

from lmos_actors.errors import ConfigError
from lmos_actors.security import ANYONE, Security, idle_patterns
from lmos_actors.system import USED, absolute, key_of, paths
from lmos_actors.system.model import AgentEntry, Tree

from ..model import filled_for, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmos_actors.files import DataPath
    from lmos_actors.security import Verb
    from lmos_actors.system import CellNames, NodeValidator

    from ..model import Group

VERBS: Final[tuple[Verb, ...]] = ("read", "write", "invoke", "subscribe")
"""The operations that a ref is used for."""

BESIDE: Final = "put both in one group"


@attrs.frozen
class GivenRef:
    """A ref that an agent is given.

    `place` is its place in the file. `written` is its place in the tree, "" if the file gives the ref.
    """

    user: str
    target: str
    place: DataPath
    written: str = ""


def given_refs(names: CellNames) -> Iterator[GivenRef]:
    """Yield the refs between agents in the file, and in the tree that it uses."""
    for late in names.cell.late:
        if late.reference.namespace == "agents" and late.path[0] == "agents":
            yield GivenRef(str(late.path[1]), late.reference.name, late.path)
    if names.tree is None:
        return
    for path, spec in names.tree.agents.items():
        entry = names.agents.get(path)
        instead = entry.args if isinstance(entry, AgentEntry) else {}
        for each in spec.references:
            if not any(f".factory({argument}=" in each.place for argument in instead):
                target = absolute(path[: -len(spec.name)], each.sibling)
                yield GivenRef(path, target, USED, each.place)
    for path, bulk in names.tree.bulks.items():
        for each in bulk.member.references:
            yield GivenRef(path, absolute(f"{path}/", each.sibling), USED, each.place)


class GroupRefs:
    """Validates the refs between groups; mistakes go to `names`."""

    def __init__(self, names: CellNames, nodes: NodeValidator, groups: Mapping[str, Group]) -> None:
        self._names = names
        self._nodes = nodes
        self._groups = groups
        self._rules: dict[str, Security | None] = {}
        tree = names.made.get(("tree",))
        root = tree.root if isinstance(tree, Tree) else UNSET
        self._paths = {} if root is UNSET else paths(root)

    def check(self) -> None:
        """Check all refs, and the access rules of groups."""
        for name in self._groups:
            rules = self._security(name)
            if rules is None:
                continue
            own = [self._public(each) for each in self._names.names if self._nodes.node_of(each) == name]
            for pattern, hint in idle_patterns(rules.access, own):
                why = f'"{pattern}" in its access rules fits no agent of the group "{name}"{hint}'
                self._names.warn(("groups", name, "security"), why)
        for ref in given_refs(self._names):
            source, sought = self._nodes.node_of(ref.user), self._nodes.node_of(ref.target)
            if source not in self._groups or sought not in self._groups:
                continue  # which is a mistake of its own, or an agent of others
            if source != sought:
                self._check_ref(ref, source, sought, f'"{ref.target}" is in the group "{sought}"')
            elif (
                self._groups[source].replicas > 1
                and key_of(ref.target, self._names.agents, self._names.tree) is not None
            ):
                count = self._groups[source].replicas
                where = f'"{ref.target}" has a key, and is in one of the {count} processes of "{sought}"'
                self._check_ref(ref, source, sought, where)

    def _report(self, ref: GivenRef, why: str) -> None:
        text = f"{ref.written}: {why}" if ref.written else why
        self._names.report(ref.place, text, "shape")

    def _check_ref(self, ref: GivenRef, source: str, sought: str, where: str) -> None:
        if self._names.tree is not None and ref.user in self._names.tree.bulks and source != sought:
            self._report(ref, f"{where}, and a BulkSpec has refs to agents of its own group alone: {BESIDE}")
            return
        cls: Any = self._names.class_of(ref.target)
        if cls is not None and self._names.fitted and cls.__contract__.options.private:
            why = f"{cls.__name__} is private, so only its own process reaches it"
            self._report(ref, f"{where}, and {why}: {BESIDE}, or leave out private=True")
            return
        if not self._share_directory(source, sought):
            self._report(ref, f'{where}, and "{source}" finds it in a directory: {self._fix(source, sought)}')
        elif source != sought:
            self._check_rights(ref, source, sought, where)

    def _share_directory(self, source: str, sought: str) -> bool:
        """Return whether agents of one group may find agents of another, as far as the file shows."""
        known = {*texts_of(self._groups[source].register), *texts_of(self._groups[source].lookup)}
        if self._groups[source].directory:
            known.add(source)
        registered = {*texts_of(self._groups[sought].register)}
        by_url = any("://" in text for text in sorted(known | registered))  # which may be one of these
        return bool(known & registered) or (by_url and bool(known) and bool(registered))

    def _fix(self, source: str, sought: str) -> str:
        hosts = [name for name, group in self._groups.items() if group.directory]
        registered = texts_of(self._groups[sought].register)
        there = registered[0] if registered else hosts[0] if hosts else "NAME"
        needs = f'"{sought}" needs "register: {there}"'
        if source != there and source != sought:
            needs += f', and "{source}" needs "register: {there}" or "lookup: {there}"'
        return needs if hosts or registered else f'{needs}; NAME is a group with "directory: true"'

    # ---- access rules: a process presents nothing to those of other groups

    def _check_rights(self, ref: GivenRef, source: str, sought: str, where: str) -> None:
        name = self._public(ref.target)
        group, rules = self._groups[sought], self._security(sought)
        if group.client_ca is not None:
            key, who = "client_ca", "clients with a certificate"
        elif rules is not None and not any(rules.rules.rule(name, verb).open for verb in VERBS):
            key, who = "security", "clients with credentials"
        else:
            return
        why = f'by its "{key}" it is for {who} alone, and a process of "{source}" has none to show'
        fix = f'a list "{ANYONE}" for "{name}"' if key == "security" else f'leave out "{key}"'
        self._report(ref, f"{where}, and {why}: {fix}, or {BESIDE}")

    def _security(self, name: str) -> Security | None:
        """Return the access rules of a group; None if there are none, or they cannot be read here.

        Invalid rules are reported by `doctor`.
        """
        if name not in self._rules:
            group, self._rules[name] = self._groups[name], None
            if group.security is not None:
                folder = Path(str(self._names.document.path)).parent / filled_for(group.cwd or ".", 1)
                with suppress(ConfigError):  # it may be of another machine
                    self._rules[name] = Security.load(folder / filled_for(group.security, 1))
        return self._rules[name]

    def _public(self, name: str) -> str:
        """Return the name of an agent outside its process."""
        from lmos_actors.bindings import public_name  # few files need it

        return public_name(self._paths.get(name, name))
