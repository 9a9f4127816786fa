"""``AsyncWorkflow``: the class that authors of an ``async def run()`` derive from."""

from __future__ import annotations

from typing import Generic

from stepwell.definition.workflow import H, Workflow

__all__ = ["AsyncWorkflow"]


class AsyncWorkflow(Workflow[H], Generic[H]):
    """A workflow whose ``run()`` is a coroutine: the same names as in :class:`Workflow`, and its calls are awaited.

    Steps, ``self.sleep()``, ``self.wait_for_signal()`` and all other durable calls in ``run()`` are awaited. What ends
    the run there (``self.cancel()``, ``self.finish()``) and what only answers (``self.context``, ``self.now``,
    ``self.uuid4()``) is not. Steps may be ``async def`` or plain here as there.

    One durable call is under way at a time: the order of the calls is what a replay goes by. So
    ``asyncio.gather()`` and ``asyncio.create_task()`` raise ``RunError`` as soon as there are two of them. What should
    happen at the same time belongs into one ``async def`` step.

    A class without ``run()`` is declared as with ``Workflow``, and runs its steps from top to bottom.

    Durability:
        As for ``Workflow``. ``run()`` is on the event loop that the process's async steps share; the steps that are
        plain, and whatever is written, are not.

    Example:
        >>> import asyncio
        >>> from datetime import timedelta
        >>> from stepwell import AsyncWorkflow, step
        >>> class Order(AsyncWorkflow):
        ...     async def run(self, items: list[str]) -> list[str]:
        ...         shipped = [await self.ship(item) for item in items]
        ...         await self.close()
        ...         return shipped
        ...
        ...     @step(key_by="item")
        ...     async def ship(self, item: str) -> str:
        ...         return f"shipped {item}"
        ...
        ...     @step
        ...     def close(self) -> None: ...
        >>> asyncio.run(Order().run(["a", "b"]))
        ['shipped a', 'shipped b']
    """


# Not in the class's body: the names of all workflows are the library's own, and no class may bind them anew.
AsyncWorkflow._is_async = True
