"""All kinds of files as one type, and their JSON Schema."""

from __future__ import annotations

from typing import Any, TypeAlias

from lmos_actors.deployment.model import Deployment
from lmos_actors.files import schema_of_file

from ._files import Scenario, Simulation

AnyFile: TypeAlias = Scenario | Simulation | Deployment
"""Any kind of file, distinguished by `lmos`."""


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario, simulation and deployment files, for editors."""
    return schema_of_file(AnyFile, title="lmos-actors scenario/v1, simulation/v1 and deployment/v1")
