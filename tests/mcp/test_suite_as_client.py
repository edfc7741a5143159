"""MCP servers in use, judged by the official conformance suite: all of its scenarios for clients."""

from __future__ import annotations

import os
import sys

import pytest

from tests.mcp.suite import failed, run_scenario, scenarios
from tests.source import ROOT

SCENARIOS = (
    "initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry",
    "auth/metadata-default", "auth/metadata-var1", "auth/metadata-var2", "auth/metadata-var3",
    "auth/basic-cimd", "auth/scope-from-www-authenticate", "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined", "auth/scope-step-up", "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic", "auth/token-endpoint-auth-post", "auth/token-endpoint-auth-none",
    "auth/pre-registration", "auth/2025-03-26-oauth-endpoint-fallback", "auth/resource-mismatch",
    "auth/offline-access-scope", "auth/offline-access-not-supported", "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
)  # fmt: skip

EXCEPTIONS = {
    # its server has its metadata at the root and names an issuer below it, which RFC 8414 (3.3) has clients
    # refuse, as the SDK does; the suite has mended that since
    "auth/2025-03-26-oauth-metadata-backcompat": {
        "client-registration", "authorization-request", "token-request"
    },
    # an identity provider of an enterprise (SEP-990) is not offered: the SDK does half of it
    "auth/cross-app-access-complete-flow": {"complete-flow-token-exchange", "complete-flow-jwt-bearer"},
}  # fmt: skip
"""The scenarios that are not met, with the checks that fail."""

CLIENT = f"{sys.executable} -m tests.mcp.suite_client"


def judged(name: str) -> list[str]:
    checks = run_scenario(
        "client", name, "--command", CLIENT, "--timeout", "90000", env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    return failed(checks)


def test_each_scenario_has_a_line_here() -> None:
    assert sorted(scenarios("client")) == sorted([*SCENARIOS, *EXCEPTIONS])


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str) -> None:
    assert judged(name) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exception(name: str) -> None:
    assert {each.partition(":")[0] for each in judged(name)} == EXCEPTIONS[name]
