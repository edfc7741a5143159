"""References against bases, and templates: the tables of the RFCs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from lmos_actors.protocol import td
from tests.rows import each_row

BASE = "http://a/b/c/d;p?q"
SCHEME = re.compile("[a-z][a-z0-9+.-]*(?=:)", re.IGNORECASE)  # RFC 3986, 3.1
RESOLVED = {  # RFC 3986, 5.4
    "g:h": "g:h",
    "g": "http://a/b/c/g",
    "./g": "http://a/b/c/g",
    "g/": "http://a/b/c/g/",
    "/g": "http://a/g",
    "//g": "http://g",
    "?y": "http://a/b/c/d;p?y",
    "g?y": "http://a/b/c/g?y",
    "#s": "http://a/b/c/d;p?q#s",
    "g#s": "http://a/b/c/g#s",
    ";x": "http://a/b/c/;x",
    "": "http://a/b/c/d;p?q",
    ".": "http://a/b/c/",
    "..": "http://a/b/",
    "../g": "http://a/b/g",
    "../..": "http://a/",
    "../../g": "http://a/g",
    "../../../g": "http://a/g",
    "/./g": "http://a/g",
    "/../g": "http://a/g",
    "g.": "http://a/b/c/g.",
    "..g": "http://a/b/c/..g",
    "./g/.": "http://a/b/c/g/",
    "g/./h": "http://a/b/c/g/h",
    "g/../h": "http://a/b/c/h",
    "g;x=1/../y": "http://a/b/c/y",
    "g?y/../x": "http://a/b/c/g?y/../x",
    "g#s/../x": "http://a/b/c/g#s/../x",
}


@each_row("href", RESOLVED)
def test_references_resolve_as_in_the_rfc(href: str) -> None:
    assert td.resolve(BASE, href) == RESOLVED[href]


@pytest.mark.parametrize(
    ("base", "href", "wanted"),
    [
        (None, "g", "g"),
        ("", "g", "g"),
        ("coap://h:1/x/", "p", "coap://h:1/x/p"),
        ("ws://h", "ws", "ws://h/ws"),
        ("wss://h/x", "https://other/y", "https://other/y"),
        ("http://h/x/", "p{?a,b}", "http://h/x/p{?a,b}"),
        ("http://h/x/", "{a}/../{b}{?c}", "http://h/x/{b}{?c}"),
        ("http://h/x/", "{+path}", "http://h/x/{+path}"),
        ("http://h/{v}/", "p{#f}", "http://h/{v}/p{#f}"),
        ("http://h/x/", "a{}b", "http://h/x/a{}b"),
    ],
)
def test_more_references(base: str | None, href: str, wanted: str) -> None:
    assert td.resolve(base, href) == wanted


@pytest.mark.parametrize(
    ("text", "is_uri"),
    [
        ("urn:uuid:6f1d", True),
        ("http://h", True),
        ("mailto:a@b", True),
        ("chatagent", False),
        ("1a:b", False),
        ("a b:c", False),
        ("http://h/a b", False),
        ("x:", False),
        ("", False),
        ("/a", False),
    ],
)
def test_what_is_a_uri(text: str, is_uri: bool) -> None:
    assert td.is_uri(text) == is_uri


VALUES = {
    "var": "value", "hello": "Hello World!", "path": "/foo/bar", "x": 1024, "y": 768.5,
    "empty": "", "yes": True, "triplets": "a%2Fb%%zz%252f",
}  # fmt: skip
EXPANDED = {  # RFC 6570, 1.2 and 3.2
    "{var}": "value",
    "{hello}": "Hello%20World%21",
    "{+hello}": "Hello%20World!",
    "{+path}/here": "/foo/bar/here",
    "{path}": "%2Ffoo%2Fbar",
    "{#x,hello,y}": "#1024,Hello%20World!,768.5",
    "X{.x,y}": "X.1024.768.5",
    "{/var,x}/here": "/value/1024/here",
    "{;x,y,empty}": ";x=1024;y=768.5;empty",
    "{?x,y}": "?x=1024&y=768.5",
    "{?x,empty}": "?x=1024&empty=",
    "?fixed=yes{&x}": "?fixed=yes&x=1024",
    "{?undef,x}": "?x=1024",
    "{?undef}": "",
    "O{undef}X{empty}O": "OXO",
    "{var:3}{x*}": "val1024",
    "{yes}": "true",
    "{+triplets}": "a%2Fb%25%25zz%252f",  # 3.2.3: reserved expansion keeps what is encoded already
    "{#triplets}": "#a%2Fb%25%25zz%252f",
    "{triplets}": "a%252Fb%25%25zz%25252f",
    "{?response-required}": "{?response-required}",  # not allowed: taken literally
    "/{x}{?a b}{&x}": "/1024{?a b}&x=1024",
    "no variables": "no variables",
}


@each_row("template", EXPANDED)
def test_templates_are_filled_in_as_in_the_rfc(template: str) -> None:
    assert td.expand(template, VALUES) == EXPANDED[template]


@pytest.mark.parametrize(
    "template", ["{", "}", "a{b", "a}b{}", "{}", "{a b}", "{a,}", "{!a}", "{a:0}", "{{a b}}"]
)
def test_malformed_templates_are_found_and_taken_literally(template: str) -> None:
    data = {"title": "x", "events": {"e": {"forms": [{"href": f"http://h/{template}"}]}}}
    assert any(each.path == "/events/e/forms/0/href" for each in td.check(data) if each.severity == "error")
    assert td.expand(template, {}) == template


def test_variables_are_named_once_in_order() -> None:
    assert td.variables_of("/{b}/{a:3}{?b,c*}") == ("b", "a", "c")


@given(st.text(alphabet="ab:/?#{}.%\0 \n"), st.text(alphabet="ab:/?#{}.%\0 \n"))
def test_any_reference_resolves_and_the_outcome_stays(base: str, href: str) -> None:
    whole = td.resolve(f"http://{base}", href)
    absolute = SCHEME.match(href)
    scheme = SCHEME.match(whole)
    assert scheme is not None
    assert scheme[0] == (absolute[0] if absolute else "http")
    assert td.resolve("urn:other", whole) == whole


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(td.DescriptionError, match="surrogate"):
        td.expand("{x}", {"x": "\ud800"})


@given(st.text())
def test_a_value_in_a_template_stays_a_value(text: str) -> None:
    """What is filled in cannot become a path, a query or an address of its own."""
    filled = td.expand("https://h/items/{id}{?q}", {"id": text, "q": text})
    assert filled.count("/") == 4
    assert filled.count("?") == 1
    assert filled.count("#") == 0
