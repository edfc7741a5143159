"""Migrations of stored data: functions from one version of a durable class to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from lmos_actors.errors import StateMismatch, raise_interrupt

from ..crashes._traces import place_of

Plain: TypeAlias = dict[str, Any]
Migration: TypeAlias = Callable[[Plain], Plain]
"""Makes the state of the next version from the state of its own version; it may change its argument."""


def migrated(
    plain: Plain, version: int, now: int, migrations: Mapping[int, Migration], title: str, key: str, what: str
) -> Plain:
    """Return stored plain data, migrated from `version` to the present version, `now`.

    `what` names the data in errors. Raises StateMismatch.
    """
    if version > now:
        raise StateMismatch(
            key,
            f"{what} was written by version {version} of {title}, and this is version {now}, "
            f"which cannot read it: run the newer program",
        )
    for step in range(version, now):
        migration = migrations.get(step)
        if migration is None:
            name = "state_migrations" if what == "it" else "fact_migrations"
            raise StateMismatch(
                key,
                f"{what} is of version {step} of {title}, which has no migration from that version: "
                f"{name} = {{{step}: function}}",
            )
        try:
            plain = migration(plain)
        except BaseException as error:
            raise_interrupt(error)
            raise StateMismatch(
                key,
                f"{what} is of version {step} of {title}, and the migration from that version raised "
                f"{type(error).__name__}: {error} at {place_of(error)}",
            ) from error
        if not isinstance(plain, dict):  # pyright: ignore[reportUnnecessaryIsInstance] # of the user's code
            raise StateMismatch(
                key, f"{what}: the migration of {title} from version {step} returned {plain!r}, and no dict"
            )
    return plain


def versions_of(cls: type, name: str) -> tuple[int, dict[int, Migration]]:
    """Return the version of a class's state, and its migrations of state or of facts.

    Raises TypeError for a step without a migration.
    """
    version = getattr(cls, "state_version", 1)
    if type(version) is not int or version < 1:
        raise TypeError(f"{cls.__name__}.state_version must be a whole number of at least 1, not {version!r}")
    given: Any = getattr(cls, name, {})
    if not isinstance(given, Mapping):
        raise TypeError(f"{cls.__name__}.{name} must be a dict of functions by version")
    migrations = dict(cast("Mapping[int, Migration]", given))
    for step, migration in migrations.items():
        if step not in range(1, version) or not callable(migration):
            raise TypeError(
                f"{cls.__name__}.{name}: {step!r} must be a version before state_version, which is "
                f"{version}, with a function from the state of that version to the next"
            )
    missing = [step for step in range(min(migrations, default=version), version) if step not in migrations]
    if missing:
        raise TypeError(f"{cls.__name__}.{name}: the step from version {missing[0]} is missing")
    return version, migrations
