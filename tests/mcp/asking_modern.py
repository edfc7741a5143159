"""An MCP server made with the official SDK that needs an answer of the user for its tool."""

from __future__ import annotations

from typing import Annotated, Literal

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from pydantic import BaseModel, Field


class Passenger(BaseModel):
    name: str
    age: int = Field(ge=0, le=150)
    seat: Literal["aisle", "window"] = "aisle"


async def passenger() -> Elicit[Passenger]:
    return Elicit("Who flies?", Passenger)


def main() -> None:
    server = MCPServer("asking")

    @server.tool(structured_output=False)
    async def book(who: Annotated[Passenger, Resolve(passenger)]) -> str:
        """Book a flight."""
        return f"{who.name}, {who.age}, {who.seat}"

    server.run("stdio")


if __name__ == "__main__":
    main()
