"""The worlds of this repository fail when an agent in them is broken as a programmer would break it."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import attrs
import pytest

from lmos_actors.cli import main
from tests.matrix import slow, some
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., tuple[int, str]]


@attrs.frozen
class Break:
    """A change of an agent's file, and what the command then says did not hold."""

    world: str
    module: str
    old: str
    new: str
    named: str

    @property
    def name(self) -> str:
        return f"{self.world}: {(self.new or 'no ' + self.old).strip()}"


def breaks(world: str, module: str, *changes: tuple[str, str, str]) -> list[Break]:
    return [Break(world, module, *change) for change in changes]


BREAKS = [
    *breaks(
        "weather",
        "weather",
        (" in {town}, ", " in Rome, ", "expect value $(saved.answer)"),
        ("read_only=True,\n        doc", "doc", "expected NotAllowed"),
        ("if self.units ==", "if 'kelvin' ==", "expect output in-fahrenheit"),
        ("sleep(0.2)", "sleep(0.7)", "check latency ask"),
        ("self.user_feedback_received.emit(feedback)", "pass", "expect event of user.userFeedbackReceived"),
    ),
    *breaks(
        "weather",
        "concierge",
        ("self.follow(", "print(", "expect event of user.userFeedbackReceived"),
        ("emit(feedback)", "emit(feedback)\n        self.user_feedback_received.emit(feedback)",
         "expect event of user.userFeedbackReceived"),
        ("await self.weather.within(2.0).invoke(WeatherAgent.get_weather, question, interaction_mode)",
         'f"<speak>It is 20 degrees fahrenheit {question}</speak>"', "check trace"),
    ),
    *breaks(
        "desk",
        "desk",
        ("self.count += 1", "self.count += 2", "expect output first"),
        ("durable=True", "durable=False", "invoke desk.ask (next)"),
        ('f"What is the weather in {town}?"', '"What is the weather in Rome?"', "expect output first"),
    ),
    *breaks(
        "booking",
        "booking",
        ('self.become("occupied")', "pass", "expect output meanwhile"),
        ("if guest != self.guest:", "if not guest:", "expected ActionFailed"),
        ("self.state_timeout(self.hold_for, self._lapse, guest)", "pass", "expect event of user.lapsed"),
        ("postpone=True", "postpone=False", "NotAllowed: 'wait_for'"),
    ),
    *breaks(
        "supervision",
        "flaky",
        ("raise ActionFailed(why)", "raise RuntimeError(why)", "expected ActionFailed"),
        ("sleep(self.pace)", "sleep(2 * self.pace)", "check latency"),
        ('RuntimeError("crashed as told")', 'ActionFailed("crashed as told")', "expected AgentDied"),
    ),
    *breaks(
        "backpressure",
        "pipeline",
        ("self.offer(self.made)\n            self.made += 1",
         "self.made += 1\n            self.offer(self.made)", "expect output last"),
        ("left = count - self.per_turn", "left = count - 2 * self.per_turn", "expect output made"),
        ("self.turned_away += 1", "pass", "expect output turned-away"),
        ("self.last = item", "self.last += 1", "expect output last"),
    ),
    *breaks(
        "conversation",
        "support",
        ("ABOUT_AN_ORDER.search(turn.text)", "re.search('x{9}', turn.text)", "expect items order"),
        ('turn.memory["ticket"] = number', "pass", "expect items later"),
        ("return ORDERS[number]", "return ORDERS[18]", "expect items order"),
        ("if number not in ORDERS:", "if not ORDERS:", "unknown"),
    ),
    *breaks(
        "council",
        "council",
        ('if message.type in ("question", "proposal"):',
         'for _ in range(1 + (message.type == "proposal")):', "always one_vote_each"),
        ('if message.type in ("question", "proposal"):',
         'for _ in range(1 + (message.type == "question")):', "expect heard"),
        ('if message.type in ("question", "proposal"):', 'if message.type == "proposal":',
         "say question to anna-seat ben-seat (opinions)"),
        ('if message.type in ("question", "proposal"):', 'if message.type == "question":',
         "expect output bridge"),
        ("if unanimous:", "if False:", "expect output opera"),
        ("is_for = await self.is_for(message.payload)",
         'is_for = {"moon": None, "opera": self.limit > 400}.get(message.payload, True)', "check causal"),
        ('vote = {"approve": True}', 'vote = {"approve": False}', "expect heard"),
        ("2 * self.members - 1", "self.members", "expect output opera"),
        ("if matter not in PRICES:", "if not PRICES:", "unknown"),
        ("price.payload <= self.limit", "price.payload >= self.limit", "expect heard"),
        ('{"deadline": int(deadline.timestamp() * 1000)}', "{}", "opera"),
        ("self.ends[word.ref] = ", "self.ends[str(word.type)] = ", "bridge"),
    ),
    *breaks(
        "support",
        "support",
        ("AgentError as error:\n            return", "ActionFailed as error:\n            return", "ask"),
        ("draft.confidence < self.sure_from", "draft.confidence > self.sure_from", "expect output sure"),
        ("self.model.within(self.patience).invoke", "self.model.invoke", "expect output late"),
        ("self.opened.emit(Ticket(number, question, why))", "pass", "expect event of user.opened"),
        ("ticket = self.asked\n", "ticket = self.escalated\n", "expect output cursed"),
        ("yield piece ", "yield piece.strip() ", "expect items chat"),
    ),
    *breaks(
        "market",
        "market",
        ("min(self.limit, price + max(1, self.limit // 20))", "price + self.limit // 20",
         "always within_limit"),
        ("if price < wanted:", "if price < wanted // 2:", "always above_floor"),
        ("if self.sold == self.stock:", "if self.sold > self.stock:", "always in_stock"),
        ("self.income += price", "self.income += wanted", "always books_agree"),
        ("self.offers += 1", "pass", "eventually trade"),
        ("left.remove(seller)", "pass", "eventually all_done"),
        ("self.offers // self.patience", "self.offers // 10", "FAILED check patience_pays"),
    ),
    *breaks(
        "election",
        "election",
        ("self.leading, self.leader = False, rank", "self.leader = rank", "converges reunited"),
        ("self.leading, self.missed = False, 0", "pass", "always at_most_one"),
        ("if not self.outranked and", "if", "never usurped"),
        ("if rank > self.rank:\n            self.missed = 0", "if rank >= 0:\n            self.missed = 0",
         "never usurped"),
        ("            self.tell_all()\n            return", "            return", "check"),
        ("        self.missed += 1", "        self.missed += 0", "eventually elected"),
        ("            self.missed = 0", "            pass", "never noisy"),
    ),
    *breaks(
        "register",
        "register",
        ("newest = await self._newest(key)\n        await self._store_at_majority(key, newest)",
         "newest = self.fetch(key)", "check linearizable one_register"),
        ("await self._store_at_majority(key, newest)\n        return", "return",
         "check linearizable one_register"),
        ("await self._store_at_majority(key, Stored(",
         "self.store(key, Stored(", "check linearizable one_register"),
        ("wanted = (len(self.neighbours) + 1) // 2", "wanted = 1", "check linearizable one_register"),
        ("max(self.highest, newest.version.number) + 1", "self.highest + 1",
         "check linearizable one_register"),
        ("if stored.version > self.fetch(key).version:", "if True:", "check linearizable one_register"),
        ("raise ActionFailed(", "print(", "check linearizable one_register"),
    ),
    *breaks(
        "voting",
        "voting",
        ("latest.value if latest.ballot else value", "value", "always agreement"),
        ("if ballot < self.promised:", "if ballot < 0:", "always agreement"),
        ("2 * len(answers) > len(self.acceptors)", "len(answers) >= 2", "always majority"),
        ("self.chosen = wanted", "self.chosen = value", "always agreement"),
        ("return Promise(self.accepted, self.value)", 'return Promise(0, "")', "always agreement"),
    ),
    *breaks(
        "two-centres",
        "centres",
        ("if number not in self.orders]", "]", "never counted_twice"),
        ("except AgentError:  # it may have come there or not\n                continue",
         "except AgentError:\n                pass", "eventually all_there"),
        ("except AgentError:", "except ValueError:", "eventually all_there"),
        ("del self.outbox[:count]", "self.outbox.clear()", "eventually all_there"),
        ("self.outbox.append(number)", "pass", "eventually all_there"),
        ("tuple(self.outbox[:BATCH])", "tuple(self.outbox[:1])", "eventually all_there"),
    ),
    *breaks(
        "partner",
        "support",
        ("AgentError as error:\n            return", "ActionFailed as error:\n            return",
         "invoke desk.ask (unnoticed)"),
        ("self.model.within(self.patience).invoke", "self.model.invoke", "check latency unnoticed"),
        ("self.model.within(self.patience).stream", "self.model.stream", "expect items chat"),
        ("except AgentError as error:\n                yield",
         "except ActionFailed as error:\n                yield", "stream desk.chat (chat)"),
    ),
    *breaks(
        "directory",
        "support",
        ("self.model = self.find(LanguageModel)", "pass", "expect output found"),
        ('self.find(LanguageModel)', 'self.find(LanguageModel, "day")', "expect output found"),
        ("AgentError as error:\n            return", "ActionFailed as error:\n            return",
         "invoke night.ask (unnoticed)"),
        ("self.model.within(self.patience).invoke", "self.model.invoke", "check latency unnoticed"),
    ),
    *breaks(
        "gossip",
        "gossip",
        ("        self.knows = True", "        pass", "eventually all_informed"),
        ("self.after(self.period, self.tell_some)\n", "\n", "eventually all_informed"),
        ("if version <= self.version:", "if self.knows:", "eventually settled"),
        ("not self.knows and self.collector", "self.collector", "always reported_once"),
        ("self.send(self.collector, Collector.report)", "pass", "eventually reported"),
    ),
    *breaks(
        "bank",
        "bank",
        ("transfer = self.on_the_way.pop(number, None)", "transfer = self.on_the_way.get(number)",
         "eventually it_settles"),
        ("if number not in self.taken:", "if True:", "never none_is_made"),
        ("self.on_the_way[number] = Transfer(number, to, amount)", "sent = Transfer(number, to, amount)",
         "check"),
        ("self.balance -= amount", "pass", "never none_is_made"),
        ("self.taken.add(number)", "pass", "never none_is_made"),
        ("self.balance += amount", "pass", "never none_is_lost"),
    ),
    *breaks(
        "tea",
        "tea",
        ('guest = turn.metadata.get("guest")', "guest = None", "check answer ben-asks"),
        ("tools = (MEMORY_TOOLS,)", "tools = ()", "that is offered"),
    ),
    *breaks(
        "voice",
        "voice",
        ("if speaks:", "if True:", "expect items"),
        ("if speaks:", "if not speaks:", "expect items"),
        ("self.speaking.emit(speaks)", "pass", "expect event"),
        ("round(gain * sample)", "sample", "expect items"),
        ("len(frames), sum(frames)", "len(frames), len(frames)", "expect output"),
    ),
    *breaks(
        "travel",
        "travel",
        ("self.bookings += 1", "pass", "expect output"),
        ("self.booked.emit(customer)", "pass", "expect event"),
        ("self.left -= 1", "pass", "expect output"),
        ("if self.trips[customer] == 3:", "if self.trips[customer] == 1:", "expect output"),
        ("        except AgentError:", "        except ValueError:", "plan_trip"),
    ),
    *breaks(
        "helpdesk",
        "helpdesk",
        ("if number in self.paid:", "if False:", "expect items again"),
        ("self.paid[number] = refund.amount", "pass", "expect items again"),
        ("class Payments(Agent, durable=True)", "class Payments(Agent)", "expect items chair"),
        ("self.ordered.emit(refund)", "pass", "expect event of user.ordered"),
        ("except ActionFailed:", "except ValueError:", "stream desk.chat (broken)"),
        ("(*self.tools, self.tickets)", "(*self.tools,)", "that is offered"),
        ("sibling(\"orders\", Orders), hand_over(RefundDesk)", "sibling(\"orders\", Orders),",
         "that is offered"),
        ("await self.bank.invoke(Bank.transfer, refund.amount)", "pass", "expect items chair"),
        ("return ORDERS[number]", "return ORDERS[17]", "expect items misled"),
        ("tools=(sibling(\"orders\", Orders), hand_over(RefundDesk))",
         "tools=(sibling(\"orders\", Orders), sibling(\"payments\", Payments), hand_over(RefundDesk))",
         "expect items misled"),
    ),
    *breaks(
        "research",
        "research",
        ("if not review.unfounded:", "if True:", "expect output report"),
        ("except AgentError:", "except ActionFailed:", "invoke researcher.research (unreviewed)"),
        ("if unknown:", "if False:", "mills-7"),
        ("answer=Review,", "", "expect output report"),
        ("answer=Draft,", "", "invoke researcher.research"),
        ("self.drafted.emit(draft)", "pass", "expect event of user.drafted"),
        ("{'; '.join(review.unfounded)}", "", "mock model"),
        ("tools=[(self.library, Library.read)]", "tools=[]", "that is offered"),
        ("rounds=number)\n            if", "rounds=0)\n            if", "expect output unreviewed"),
    ),
    *breaks(
        "journey",
        "journey",
        ("if self.booked[traveller] % 3 == 0:", "if False:", "expect items ben"),
        ("invoke(Clerk.book, traveller, town)", 'invoke(Clerk.book, "ada", town)', "expect items ben"),
        ("self.topic(TRIPS, Journey).publish(journey)", "pass", "stream guide.chat (nice)"),
        ("self.journeys += (journey,)", "pass", "expect"),
        ("self.asked.emit(town)", "pass", "stream guide.chat (unknown)"),
        ("most_common(3)", "most_common(3)[1:]", "mock model"),
        ("price = await self.seller.invoke(Seller.sell, town)", "price = 200", "expect"),
        ("(self.board, Board.popular_towns), ", "", "that is offered"),
        (', by="key", key="traveller",', ",", "expect items ben"),
    ),
    *breaks(
        "voice",
        "voice",
        ("yield amplified(samples, self.gain)", "yield frame", "expect items conversation"),
        ("self.speaking.emit(speaks)", "pass", "expect event of user.speaking"),
        ("sum(frames)", "len(frames)", "expect output heard"),
    ),
]  # fmt: skip

SMALLER = {
    "council": [("[memory, wire, websocket]", "[memory]")],
    "gossip": [
        ("default: 1000", "default: 40"),
        ("share: 0.05, of: peer}", "share: 0.125, of: peer}"),
        ("share: 0.02", "share: 0.1"),
        ("default: 1050", "default: 45"),
        ("peer/999", "peer/39"),
    ],
}
"""Changes that make a big world quick."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs a file of a project of its own, with the agents that are in its folder, in this process."""
    shutil.copytree(ROOT / "agents", tmp_path / "agents", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    others = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "agents"}
    forget_agents()

    def run(file: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(("run", file, "--check-determinism", "off", "--fail-fast"))
        assert isinstance(ended.value.code, int)
        return ended.value.code, capfd.readouterr().out

    yield run
    forget_agents()
    sys.modules.update(others)


def forget_agents() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "agents"]:
        del sys.modules[name]


def take(world: str, folder: Path) -> str:
    """Copy a world into a folder, a big one smaller; give its file's name."""
    text = (ROOT / f"scenarios/{world}.yaml").read_text(encoding="utf-8")
    for old, new in SMALLER.get(world, []):
        assert old in text
        text = text.replace(old, new)
    (folder / f"{world}.yaml").write_text(text, encoding="utf-8")
    for file in (ROOT / "scenarios").glob(f"{world}.deployment.yaml"):
        shutil.copy(file, folder)
    return f"{world}.yaml"


# most lines of the others are those of the worlds unbroken, below; these three have some of their own
QUICK = (
    "bank: sent = Transfer(number, to, amount)",
    'council: if message.type == "proposal":',
    "election: self.missed += 0",
)


@pytest.mark.parametrize(
    "broken",
    slow(some(BREAKS, of=7), [broken for broken in BREAKS if broken.name not in QUICK]),
    ids=lambda broken: broken.name,
)
def test_a_broken_agent_fails(tmp_path: Path, run: Run, broken: Break) -> None:
    module = tmp_path / f"agents/{broken.module}.py"
    text = module.read_text(encoding="utf-8")
    assert text.count(broken.old) == 1
    module.write_text(text.replace(broken.old, broken.new), encoding="utf-8")
    code, told = run(take(broken.world, tmp_path))
    assert (code, broken.named in told) == (1, True), told


@pytest.mark.parametrize("world", ["weather", *SMALLER])
def test_the_same_world_unbroken_passes(tmp_path: Path, run: Run, world: str) -> None:
    """A copy does, and one that was made smaller; that all worlds pass is in `test_shipped.py`."""
    code, told = run(take(world, tmp_path))
    assert code == 0, told


def test_every_world_and_agent_is_broken() -> None:
    worlds = {file.stem for file in (ROOT / "scenarios").glob("*.yaml")} - {"desk.deployment"}
    assert {broken.world for broken in BREAKS} == worlds
    elsewhere = {"__init__", "echo", "conformance", "patterns"}  # no file of scenarios has them
    modules = {file.stem for file in (ROOT / "agents").glob("*.py")} - elsewhere
    assert {broken.module for broken in BREAKS} == modules
