"""What a node answers to plain HTTP: descriptions, by name, by `Accept`, or a problem that helps."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin

import attrs
import pytest
import trio

from lmos_actors import Agent, Event, Progress, Property, action, event, prop
from lmos_actors._core import Budget, Entropy
from lmos_actors.bindings import Descriptions
from lmos_actors.bindings.http import http_app
from lmos_actors.protocol.td import OFFERS, check, effective_forms, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.bindings import LmosServer


class Weather(Agent):
    """Answers questions about the weather."""

    units: Property[str] = prop(default="celsius")
    asked: Event[str] = event()

    @action
    async def forecast(self, progress: Progress[float], city: str) -> str:
        """Forecast tomorrow for one city."""
        return city


class Quiet(Agent):
    pass


@attrs.frozen
class Shown:
    name: str
    cls: type[Agent] = Weather

    @property
    def thing_id(self) -> str:
        return f"http://127.0.0.1:8080/agents/{self.name}"


class Shelf:
    """A catalogue that is a list."""

    def __init__(self, *shown: Shown) -> None:
        self.shown = list(shown)

    def __iter__(self) -> Iterator[Shown]:
        return iter(self.shown)

    def named(self, name: str) -> Shown | None:
        return next((each for each in self.shown if each.name == name), None)


class NoAgents:
    """A server of a node that is not there: only descriptions are asked for here."""

    rt = SimpleNamespace(entropy=Entropy(), edge=None)
    budget = Budget(2**20)

    @property
    def context(self) -> NoAgents:
        return self

    def join(self, fellow: object) -> None:
        pass

    def shown_question(self, question: object) -> None:
        raise NotImplementedError

    def failed(self, error: BaseException) -> None:
        raise error


@attrs.frozen
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


def get(shelf: Shelf, path: str, *, method: str = "GET", **headers: str) -> Answer:
    """Ask the application, as a server for ASGI would."""
    bases = ["ws://127.0.0.1:8080", "wss://agents.example.org/edge"]
    app = http_app(Descriptions(shelf, bases), cast("LmosServer", NoAgents()))
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 4000),
        "server": ("127.0.0.1", 8080),
    }
    trio.run(app, scope, receive, send)
    started, *parts = sent
    found = {name.decode(): value.decode() for name, value in started["headers"]}
    return Answer(started["status"], found, b"".join(part.get("body", b"") for part in parts))


def test_an_agent_is_described_with_its_id_its_forms_and_what_is_offered() -> None:
    answer = get(Shelf(Shown("weather")), "/agents/weather")
    assert answer.status == 200
    described = load(answer.data)
    assert described.id == "http://127.0.0.1:8080/agents/weather"
    assert described.offers == OFFERS
    assert described.properties is not None
    here, there = "127.0.0.1:8080", "agents.example.org/edge"
    place = "agents/weather/properties/units"
    assert [form.href for form in effective_forms(described, described.properties["units"])] == [
        f"ws://{here}/ws",
        f"http://{here}/{place}",
        f"http://{here}/{place}/observable",
        f"http://{here}/{place}/observable",
        f"wss://{there}/ws",
        f"https://{there}/{place}",
        f"https://{there}/{place}/observable",
        f"https://{there}/{place}/observable",
    ]
    assert [finding for finding in check(answer.data) if finding.severity == "error"] == []


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/td+json"),
        ("*/*", "application/td+json"),
        ("application/*", "application/td+json"),
        ("application/json", "application/json"),
        ("application/td+json;q=0.5, application/json", "application/json"),
        ("application/json;q=0.5, application/td+json", "application/td+json"),
        ("application/json, */*;q=0.1", "application/json"),
        ("APPLICATION/JSON", "application/json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "application/json"),
        ("text/plain", "application/td+json"),
        ("application/td+json;q=0, application/json;q=0", "application/td+json"),
        ("application/json;q=much, application/td+json;q=0.1", "application/td+json"),
        (",;q=,=;", "application/td+json"),
    ],
)
def test_accept_chooses_the_media_type(accept: str | None, kind: str) -> None:
    headers = {} if accept is None else {"accept": accept}
    answer = get(Shelf(Shown("weather")), "/agents/weather", **headers)
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    assert answer.headers["vary"] == "Accept"


def test_what_has_not_changed_is_not_sent_again() -> None:
    shelf = Shelf(Shown("weather"))
    tag = get(shelf, "/agents/weather").headers["etag"]
    again = get(shelf, "/agents/weather", if_none_match=f'"x", W/{tag}')
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert get(shelf, "/agents/weather", if_none_match='"other"').status == 200
    shelf.shown = [Shown("weather", Quiet)]
    assert get(shelf, "/agents/weather", if_none_match=tag).status == 200


@pytest.mark.parametrize("path", ["/agents/wether", "/wether"])
def test_a_name_that_is_not_there_is_a_problem_with_the_nearest(path: str) -> None:
    answer = get(Shelf(Shown("quiet"), Shown("weather")), path)
    assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.data["detail"] == "no agent 'wether', did you mean '/agents/weather'?"
    assert (answer.data["about"]["nearest"], answer.data["title"], answer.data["status"]) == (
        "weather",
        "Thing Not Found",
        404,
    )


def test_a_very_long_name_is_not_said_back_whole() -> None:
    assert len(get(Shelf(Shown("weather")), "/agents/" + "x" * 10_000).body) < 1_000


def test_other_methods_are_refused_as_a_problem() -> None:
    answer = get(Shelf(Shown("weather")), "/agents/weather", method="POST")
    assert (answer.status, answer.headers["content-type"]) == (405, "application/problem+json")
    assert "GET" in answer.headers["allow"]


def test_a_short_address_leads_to_the_agent() -> None:
    answer = get(Shelf(Shown("weather")), "/weather")
    assert (answer.status, answer.headers["location"]) == (307, "agents/weather")


def test_a_short_address_of_several_parts_leads_there_too() -> None:
    answer = get(Shelf(Shown("desk/weather")), "/desk/weather")
    assert urljoin("http://proxy/edge/desk/weather", answer.headers["location"]) == (
        "http://proxy/edge/agents/desk%2Fweather"
    )


def test_names_are_quoted_where_they_become_addresses() -> None:
    odd = 'a "b"?<c>'
    shelf = Shelf(Shown(odd))
    assert get(shelf, f"/{odd}").headers["location"] == "agents/a%20%22b%22%3F%3Cc%3E"
    page = get(shelf, "/", accept="text/html").body.decode()
    assert '<a href="agents/a%20%22b%22%3F%3Cc%3E">a &quot;b&quot;?&lt;c&gt;</a>' in page


def test_the_only_agent_is_well_known() -> None:
    shelf = Shelf(Shown("weather"))
    assert get(shelf, "/.well-known/wot").body == get(shelf, "/agents/weather").body


@pytest.mark.parametrize("shown", [(), (Shown("quiet"), Shown("weather"))], ids=["none", "two"])
def test_of_several_agents_or_none_the_node_is_well_known(shown: tuple[Shown, ...]) -> None:
    answer = get(Shelf(*shown), "/.well-known/wot")
    assert answer.headers["content-type"] == "application/td+json"
    assert [link["href"] for link in answer.data["links"]] == [each.thing_id for each in shown]
    assert [finding for finding in check(answer.data) if finding.severity == "error"] == []
    assert answer.data["properties"]["things"]["forms"][0]["href"] == "http://127.0.0.1:8080/"


@pytest.mark.parametrize("names", [[], ["weather"], ["weather", "quiet", "other"]], ids=len)
@pytest.mark.parametrize("path", ["/", "/agents"])
def test_all_descriptions_are_one_array(path: str, names: list[str]) -> None:
    answer = get(Shelf(*map(Shown, names)), path)
    assert answer.headers["content-type"] == "application/json"
    assert [each["id"].rpartition("/")[2] for each in answer.data] == names


def test_browsers_are_given_a_page_that_loads_nothing() -> None:
    answer = get(Shelf(Shown("weather"), Shown("quiet", Quiet)), "/", accept="text/html, */*;q=0.1")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert '<a href="agents/weather">weather</a> Answers questions about the weather.' in answer.body.decode()


@pytest.mark.parametrize("path", ["/", "/agents/weather", "/.well-known/wot"])
def test_head_has_the_headers_of_get(path: str) -> None:
    shelf = Shelf(Shown("weather"))
    asked, shown = get(shelf, path, method="HEAD"), get(shelf, path)
    assert asked.status == 200
    assert asked.headers["content-type"] == shown.headers["content-type"]
    assert asked.headers.get("etag") == shown.headers.get("etag")


def test_a_page_of_very_many_agents_has_an_end() -> None:
    shelf = Shelf(*(Shown(f"agent-{n}", Quiet) for n in range(1_500)))
    page = get(shelf, "/", accept="text/html").body.decode()
    assert page.count("<li>") == 1_000
    assert "The first 1000" in page
    assert len(get(shelf, "/").data) == 1_500
    assert len(get(shelf, "/.well-known/wot").data["links"]) == 1_000
