"""The limit of open descriptors."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from lmos_actors.transport import raise_descriptor_limit

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_it_is_raised_but_never_lowered(limits: tuple[int, int]):
    soft, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 100, hard))
    assert raise_descriptor_limit(soft - 50) == soft - 50
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft - 50, hard)
    assert raise_descriptor_limit(10) == soft - 50
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft - 50, hard)


def test_it_ends_at_the_hard_limit(limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch):
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, to: set_to.append(to))
    assert raise_descriptor_limit(5000) == 1000
    assert set_to == [(1000, 1000)]


def test_a_system_that_refuses_is_left_as_it_is(limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch):
    def refuse(_: int, to: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_descriptor_limit(5000) == 256


def test_no_limit_is_enough(limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert raise_descriptor_limit(5000) == 5000
