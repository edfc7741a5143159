"""Accounts that move money among each other and lose none, whatever crashes: an example of durable agents.

A transfer takes the amount from the account in one turn and sends it to the other. A message may be lost with
an agent that crashes, so the account keeps each transfer until the other has confirmed it, and sends it again
from time to time; the other account keeps the numbers of the transfers that it has taken, so that none counts
twice. Both rest on what `durable=True` promises: a message leaves once the state behind it is kept, and a
crash gives that state back.
"""

from __future__ import annotations

from typing import Annotated

import attrs
from msgspec import Meta

from lmos_actors import ActionFailed, Agent, Event, Property, Ref, action, event, every, prop

Amount = Annotated[int, Meta(ge=1, le=1_000_000, description="An amount of money, in cents.")]


@attrs.frozen
class Transfer:
    """Money on its way to another account."""

    number: str
    to: str
    amount: int


class AccountAgent(Agent, durable=True):
    """An account of a bank."""

    balance: Property[int] = prop(default=100_00, read_only=True, doc="What the account holds, in cents.")
    received: Event[int] = event(doc="The account has received an amount.")
    on_the_way: dict[str, Transfer] = attrs.field(factory=dict[str, Transfer])
    taken: set[str] = attrs.field(factory=set[str])
    transfers: int = 0
    moving: int = 0

    @action
    def transfer(self, to: str, amount: Amount) -> str:
        """Send an amount to another account, by its name, and return the number of the transfer."""
        if amount > self.balance:
            raise ActionFailed({"code": "overdrawn", "detail": f"the account holds {self.balance} cents"})
        self.transfers += 1
        number = f"{self.path}-{self.transfers}"
        self.balance -= amount
        self.moving += amount
        self.on_the_way[number] = Transfer(number, to, amount)
        self._send(self.on_the_way[number])
        return number

    def _send(self, transfer: Transfer) -> None:
        account = self.find(AccountAgent, transfer.to)
        self.send(account, AccountAgent.take, transfer.number, self.path, transfer.amount)

    @action
    def take(self, number: str, sender: str, amount: Amount) -> None:
        """Take the money of a transfer, unless it has been taken before, and confirm it."""
        if number not in self.taken:
            self.taken.add(number)
            self.balance += amount
            self.received.emit(amount)
        self.send(self.find(AccountAgent, sender), AccountAgent.confirm, number)

    @action
    def confirm(self, number: str) -> None:
        """Note that the other account has taken a transfer."""
        transfer = self.on_the_way.pop(number, None)
        if transfer is not None:
            self.moving -= transfer.amount

    @every(1.0)
    def send_again(self) -> None:
        """Send again what nobody has confirmed."""
        for transfer in self.on_the_way.values():
            self._send(transfer)


class Customer(Agent):
    """Pays from one account to another, again and again, until it leaves."""

    accounts: tuple[Ref[AccountAgent], ...]
    pause: float = 0.2
    is_here: bool = True

    def started(self) -> None:
        self.after(self.pause, self._pay)

    @action
    def leave(self) -> None:
        """Pay no more."""
        self.is_here = False

    def _pay(self) -> None:
        if not self.is_here:
            return
        payer, payee = self.random.sample(self.accounts, 2)
        self.send(payer, AccountAgent.transfer, payee.path, self.random.randrange(1, 2_000))
        self.after(self.pause, self._pay)
