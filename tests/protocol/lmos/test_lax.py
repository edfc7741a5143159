"""The quick way for peers whose frames say more than is known here: it must not change what is read."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from lmos_actors.protocol import lmos
from tests.protocol.lmos.wire import TYPES, samples
from tests.rows import each_row
from tests.wire.machines import Peer

READ = '{"messageType":"readProperty","thingID":"urn:x","messageID":"a","name":"units"'


def codec_for(*, has_extra_members: bool) -> lmos.Codec:
    codec = lmos.Codec(lmos.Dialect.of_thing(offered=True))
    assert not isinstance(codec.decode(READ + "}"), lmos.Unreadable)
    for _ in range(20 if has_extra_members else 0):
        codec.decode(READ + ',"vendor":1}')
    assert codec.has_extra_members is has_extra_members
    return codec


def outcome(found: Any) -> Any:
    return "unreadable" if isinstance(found, lmos.Unreadable) else found


def test_a_peer_is_known_after_some_frames_that_were_messages() -> None:
    codec = codec_for(has_extra_members=False)
    for _ in range(50):
        codec.decode(READ)  # cut off
        codec.decode(READ + "}")
    assert not codec.has_extra_members
    for _ in range(8):
        assert not codec.has_extra_members
        codec.decode(READ + ',"vendor":1}')
    assert codec.has_extra_members


@pytest.mark.parametrize("kind", TYPES)
@given(seed=st.integers(0, 2**32))
def test_every_type_is_read_with_members_that_nobody_knows(kind: str, seed: int) -> None:
    peer = Peer(Random(seed))
    peer.codec, peer.kinds = codec_for(has_extra_members=False), [TYPES[kind]]
    text = peer.codec.encode(peer.message())
    more = text[:-1] + b',"vendor":{"a":[null]}}'
    has_extra_members, plain = codec_for(has_extra_members=True), codec_for(has_extra_members=False)
    assert has_extra_members.decode(more) == plain.decode(text)
    assert has_extra_members.decode(text) == plain.decode(text)


@each_row("sample", samples("oddities"), ids=lambda sample: sample["name"])
def test_a_sample_is_read_as_by_any_other_codec(sample: Any) -> None:
    text = sample["text"] if "text" in sample else json.dumps(sample["frame"])
    assert outcome(codec_for(has_extra_members=True).decode(text)) == outcome(
        codec_for(has_extra_members=False).decode(text)
    )


def has_a_member_twice(frame: str | bytes) -> bool:
    """Whether the quick readers take the last of two where the others refuse both: see `_codec.py`."""
    twice: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        twice.extend(name for name in names if names.count(name) > 1)

    with suppress(ValueError, RecursionError):
        json.loads(frame, object_pairs_hook=note)
    return bool(twice)


@example(seed=1920)
@given(seed=st.integers(0, 2**64))
def test_damage_is_read_as_by_any_other_codec(seed: int) -> None:
    peer = Peer(Random(seed))
    for frame in (peer.frame() for _ in range(20)):
        if has_a_member_twice(frame):
            continue
        assert outcome(codec_for(has_extra_members=True).decode(frame)) == outcome(
            codec_for(has_extra_members=False).decode(frame)
        )


@pytest.mark.parametrize("other", ['"thingId":"urn:y"', '"property":"other"', '"messageId":"b"'])
def test_two_spellings_that_differ_are_still_refused(other: str) -> None:
    assert isinstance(
        codec_for(has_extra_members=True).decode(f'{READ},"vendor":1,{other}}}'), lmos.Unreadable
    )


def test_a_peer_that_turns_to_kotlin_wot_is_still_noticed() -> None:
    codec = codec_for(has_extra_members=True)
    codec.decode('{"messageType":"subscribeevent","thingID":"urn:x","messageID":"a","event":"e","vendor":1}')
    assert codec.dialect.habits == "kotlin-wot"
