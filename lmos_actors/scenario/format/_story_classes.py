"""Classes of agents whose entries name no class: mocks, replays, bridges, the hub and the directory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lmos_actors.system import add_made_class
from lmos_actors.system.model import Bridge, Mock, Replay

from ..doubles import replays_among

if TYPE_CHECKING:
    from lmos_actors.actors import Agent
    from lmos_actors.files import Mistake
    from lmos_actors.system import CellNames

    from ..doubles import Recording, Recordings


def add_story_classes(
    recordings: Recordings, names: CellNames, classes: dict[str, type], mistakes: list[Mistake]
) -> None:
    """Add the classes of agents whose entries name no class and replace no agent of the file's tree."""
    document = names.document
    for name, entry in names.agents.items():
        if isinstance(entry, Mock) and entry.use is None and name not in classes:
            add_made_class(document, name, partial(_mock_contract, name, entry), classes, mistakes)
        elif isinstance(entry, Bridge):
            classes[name] = _bridge_class(entry)
        elif names.is_hub(name):
            from lmos_actors.facades.relay import RelayHub

            classes[name] = RelayHub
        elif names.is_directory(name):
            from lmos_actors.directory import ThingDirectory

            classes[name] = ThingDirectory
    replays = replays_among(names.agents)
    for name, recording in recordings.of(replays, mistakes, classes).items():
        if replays[name].use is None and name not in classes:
            made = partial(_replay_contract, name, replays[name], recording)
            add_made_class(document, name, made, classes, mistakes)


def _mock_contract(name: str, entry: Mock) -> type:
    from ..doubles import mock_contract, on_hub

    if entry.speaks == "lmos":
        return mock_contract(name, entry)
    if entry.speaks == "relay":
        return mock_contract(name, on_hub(entry))
    if entry.speaks == "model":
        from lmos_actors.llm import Model

        return Model
    from ..doubles._chat_mocks import ChatMock

    return ChatMock


def _replay_contract(name: str, entry: Replay, recording: Recording) -> type:
    from ..doubles import contract_of

    made = contract_of(name, entry, recording)  # which knows whether it is in the recording
    if entry.speaks == "model":
        from lmos_actors.llm import Model

        return Model
    if entry.speaks != "omnia":
        return made
    from ..doubles._chat_mocks import ChatReplay

    return ChatReplay


def _bridge_class(entry: Bridge) -> type[Agent]:
    """Return the class of a bridge. Imports the code for its protocol here, as few files need it."""
    if entry.speaks == "omnia":
        from lmos_actors.facades import RemoteChat

        return RemoteChat
    from ..doubles._hub_agents import HubBridge, HubMember

    return HubMember if entry.to is None else HubBridge
