"""A tool of VeRL's that notes what it is told, and a parser for which every answer is a call of it.

A tiny model cannot be relied on to write a call. VeRL loads this module in its processes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse

NAME = "hint"
"""Of the tool, and of the parser."""


def configuration(told: Path) -> dict[str, Any]:
    """VeRL's of the tool. told: the folder of its notes, a file for each call."""
    schema = {"name": NAME, "description": "A hint.", "parameters": {"type": "object", "properties": {}}}
    settings = {"type": "native", "told": str(told)}
    tool = {"class_name": f"{__name__}.Hint", "config": settings}
    return {"tools": [tool | {"tool_schema": {"type": "function", "function": schema}}]}


class Hint(BaseTool):
    """Selected by its name in the configuration's schema."""

    async def create(self, instance_id: str | None = None, **told: Any) -> tuple[str, ToolResponse]:
        instance, response = await super().create(instance_id)
        (Path(self.config["told"]) / instance).write_text(json.dumps(told["create_kwargs"]))
        return instance, response


@ToolParser.register(NAME)
class EveryAnswer(ToolParser):
    """Calls the tool after each answer."""

    async def extract_tool_calls(self, responses_ids: list[int], tools: Any = None) -> tuple[str, list[FunctionCall]]:
        return self.tokenizer.decode(responses_ids), [FunctionCall(name=NAME, arguments="{}")]
