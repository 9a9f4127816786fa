"""An agent: turn after turn, as many as it takes; a tool that may do harm waits for a person's approval."""

from __future__ import annotations

from typing import Any

from examples.outside import Service
from stepwell import Workflow, step

model = Service()
tools = Service()
SCRIPT: list[dict[str, Any]] = []
"""What the model answers, turn by turn; it stands for a real one."""


class Agent(Workflow):
    """Each turn and each tool is a step: a crash repeats one of them, and not the conversation."""

    def run(self, question: str) -> str:
        messages: list[dict[str, Any]] = [{"role": "user", "text": question}]
        while True:
            turn = self.think(messages)
            messages.append(turn)
            if "answer" in turn:
                answer: str = turn["answer"]
                return answer
            if turn["tool"] == "delete":
                self.pause(
                    "tool_approval"
                )  # passed once somebody has called resume(), however often it comes
            messages.append({"role": "tool", "text": self.use(turn["tool"])})

    @step(digest=False)
    def think(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """``digest=False``: a digest of the whole conversation in each turn would cost more than it tells."""
        model("think", len(messages))
        return SCRIPT[(len(messages) - 1) // 2]

    @step
    def use(self, tool: str) -> str:
        if tools.knows("refused", tool):
            return "refused"
        return tools(tool)
