"""The contract that a class receives when its class statement runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lmos_actors._core import remember_names

from .declaration._contract import Contract, UnreadContract
from .declaration._contract_compiler import compile_contract
from .durable._kept_state import state_form

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from .declaration._options import ClassOptions


def contract_of_class(
    cls: Any,
    bases: Mapping[str, Any],
    reserved: frozenset[str],
    rename: str | None,
    options: ClassOptions,
    frame: FrameType,
) -> Contract:
    """Set the `__contract__` of a class and return it, or an outline of it while some types are unknown.

    `frame` runs the class statement, whose names the annotations see. Raises as `compile_contract` does.
    """
    remember_names(cls, frame)
    read = partial(_read, cls, bases, reserved, rename, options)
    contract = cls.__contract__ = read(is_last=False)
    if contract.unread:
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        cls.__contract__ = UnreadContract(cls, contract, partial(read, is_last=True), place)
    return contract


def _read(
    cls: Any,
    bases: Mapping[str, Any],
    reserved: frozenset[str],
    rename: str | None,
    options: ClassOptions,
    *,
    is_last: bool,
) -> Contract:
    contract = compile_contract(cls, bases, reserved, rename=rename, options=options, is_last=is_last)
    if options.durable:
        contract.state = state_form(cls, contract, is_last=is_last)
    return contract
