"""The agent that the official suite is run against: what it offers has the names that the suite asks for."""

from __future__ import annotations

from typing import Annotated, Any

import trio
from msgspec import Meta, Struct

from lmos_actors import ActionFailed, Agent, Progress, Property, action, prop
from lmos_actors.mcp import McpContent, McpMessage, McpOptions, McpProgress, prompt, resource

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
STEP = 0.05
"""Seconds between two reports."""

OPTIONS = McpOptions(agent="everything", logs=True)

NAME: dict[str, Any] = {"type": "string", "description": "User name", "default": "John Doe"}
DEFAULTS: dict[str, Any] = {
    "name": NAME,
    "age": {"type": "integer", "description": "User age", "default": 30},
    "score": {"type": "number", "description": "User score", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "description": "Verification status", "default": True},
}
OPTIONS_OF_THREE = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
CHOICES: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": OPTIONS_OF_THREE},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS_OF_THREE}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


class Person(Struct):
    """A person, whose schema says more than its type."""

    name: str = ""
    address: dict[str, Any] = {}


class Everything(Agent):
    """Has one of each."""

    watched: Property[str] = prop(default="Watched resource content")

    # ---- tools

    @action
    def test_simple_text(self) -> str:
        """Return a text."""
        return "This is a simple text response for testing."

    @action
    def test_image_content(self) -> McpContent:
        """Return a picture."""
        return McpContent("image", data=PICTURE, mime_type="image/png")

    @action
    def test_audio_content(self) -> McpContent:
        """Return a sound."""
        return McpContent("audio", data=SOUND, mime_type="audio/wav")

    @action
    def test_embedded_resource(self) -> McpContent:
        """Return a resource."""
        text = "This is an embedded resource content."
        return McpContent("resource", text, mime_type="text/plain", uri="test://embedded-resource")

    @action
    def test_multiple_content_types(self) -> list[McpContent]:
        """Return a text, a picture and a resource."""
        return [
            McpContent(text="Multiple content types test:"),
            self.test_image_content(),
            McpContent(
                "resource", '{"test":"data","value":123}', mime_type="application/json", uri="test://mixed"
            ),
        ]

    @action
    async def test_tool_with_logging(self) -> str:
        """Log three lines."""
        for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            self.log.info(line)
            await trio.sleep(STEP)
        return "Tool with logging executed successfully"

    @action
    async def test_tool_with_progress(self, progress: Progress[McpProgress]) -> str:
        """Report three times, the last time at its end."""
        for number in (0, 50, 100):
            progress.report(McpProgress(number, 100, f"Completed step {number} of 100"))
            await trio.sleep(STEP if number < 100 else 0)
        return "done"

    @action
    def test_error_handling(self) -> str:
        """Fail."""
        raise ActionFailed("This tool intentionally returns an error for testing")

    @action
    async def test_sampling(self, prompt: str) -> str:
        """Ask the client's model."""
        said = await self._asked(
            "sampling/createMessage",
            {"messages": [{"role": "user", "content": {"type": "text", "text": prompt}}], "maxTokens": 100},
        )
        return f"LLM response: {said['content']['text']}"

    @action
    async def test_elicitation(self, message: str) -> str:
        """Ask the client's user."""
        said = await self._elicited(message, {"response": {"type": "string"}}, ["response"])
        return f"User response: {said}"

    @action
    async def test_elicitation_sep1034_defaults(self) -> str:
        """Ask with defaults."""
        return f"Elicitation completed: {await self._elicited('Please review', DEFAULTS)}"

    @action
    async def test_elicitation_sep1330_enums(self) -> str:
        """Ask with choices."""
        return f"Elicitation completed: {await self._elicited('Please select', CHOICES)}"

    async def _elicited(self, message: str, fields: dict[str, Any], required: list[str] | None = None) -> str:
        form = {"type": "object", "properties": fields, "required": required or []}
        said = await self._asked("elicitation/create", {"message": message, "requestedSchema": form})
        return f"action={said['action']}, content={said.get('content', {})}"

    async def _asked(self, name: str, arguments: dict[str, Any]) -> Any:
        return await self.ask_client(name, arguments)

    @action
    def json_schema_2020_12_tool(self, data: Annotated[Person, Meta(extra_json_schema=SCHEMA)], /) -> str:
        """Take an object with a schema of its own."""
        return f"JSON Schema 2020-12 tool called with: {data}"

    # ---- prompts

    @action
    @prompt
    def test_simple_prompt(self) -> str:
        """A prompt without arguments."""
        return "This is a simple prompt for testing."

    @action
    def completed(self, typed: str) -> list[str]:
        """Return what completes a text."""
        return [each for each in ("paris", "park", "party") if each.startswith(typed)]

    @action
    @prompt(complete={"arg1": completed})
    def test_prompt_with_arguments(self, arg1: str, arg2: str) -> str:
        """A prompt with two arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @action
    @prompt
    def test_prompt_with_embedded_resource(self, resourceUri: str) -> list[McpMessage]:
        """A prompt with a resource."""
        text = "Embedded resource content for testing."
        content = McpContent("resource", text, mime_type="text/plain", uri=resourceUri)
        return [
            McpMessage("user", content),
            McpMessage("user", McpContent(text="Please process the embedded resource above.")),
        ]

    @action
    @prompt
    def test_prompt_with_image(self) -> list[McpMessage]:
        """A prompt with a picture."""
        return [
            McpMessage("user", McpContent("image", data=PICTURE, mime_type="image/png")),
            McpMessage("user", McpContent(text="Please analyze the image above.")),
        ]

    # ---- resources

    @action(safe=True)
    @resource("test://static-text", mime_type="text/plain")
    def static_text(self) -> str:
        """A text."""
        return "This is the content of the static text resource."

    @action(safe=True)
    @resource("test://static-binary", mime_type="image/png")
    def static_binary(self) -> McpContent:
        """A picture."""
        return McpContent("resource", data=PICTURE, mime_type="image/png")

    @action(safe=True)
    @resource("test://template/{id}/data", mime_type="application/json")
    def template(self, id: str) -> dict[str, Any]:
        """Data of an id."""
        return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}

    @action(safe=True)
    @resource("test://watched-resource", mime_type="text/plain", changes=watched)
    def watched_resource(self) -> str:
        """A text that changes."""
        return self.watched
