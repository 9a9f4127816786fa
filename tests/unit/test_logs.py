"""A record of the library: one message for all of its kind, with the facts behind it and as fields."""

from __future__ import annotations

import io
import json
import logging

import pytest

from stepwell.cli.logs import JSONLines, TextLines
from stepwell.logs import facts_logger

_log = facts_logger("stepwell.tests.logs")
FACTS = {
    "action": "run.attention",
    "run_id": "0193",
    "workflow": "Order",
    "step": None,
    "error": "no\nmoney left",
}


def formatted(formatter: logging.Formatter) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.getLogger("stepwell.tests.logs")
    logger.addHandler(handler)
    try:
        _log.warning("a run needs a person", extra=FACTS)
    finally:
        logger.removeHandler(handler)
    return stream.getvalue()


def test_a_plain_format_shows_the_facts() -> None:
    """An application's own, which knows nothing of fields; in one line, whatever a text holds."""
    line = formatted(logging.Formatter(logging.BASIC_FORMAT))
    assert line == (
        "WARNING:stepwell.tests.logs:a run needs a person run_id=0193 workflow=Order error='no\\\\nmoney left'\n"
    )


def test_the_formats_of_the_command_line_show_them_once() -> None:
    """They have places of their own there."""
    assert formatted(TextLines()).count("run_id=0193") == 1
    document = json.loads(formatted(JSONLines()))
    assert (document["message"], document["run_id"]) == ("a run needs a person", "0193")


def test_tools_group_by_a_constant_message(caplog: pytest.LogCaptureFixture) -> None:
    """And learn from which line it comes."""
    _log.warning("a run needs a person", extra=FACTS)
    _log.warning("a run needs a person", extra={**FACTS, "run_id": "0194"})
    _log.warning("nothing else is known")
    first, second, last = caplog.records
    assert first.msg == second.msg
    assert (first.filename, first.funcName) == ("test_logs.py", "test_tools_group_by_a_constant_message")
    assert first.__dict__["run_id"] == "0193"
    assert last.getMessage() == "nothing else is known"


def test_a_record_that_nobody_wants_is_not_made(caplog: pytest.LogCaptureFixture) -> None:
    """Levels hold."""
    with caplog.at_level(logging.ERROR, "stepwell.tests.logs"):
        _log.warning("a run needs a person", extra=FACTS)
    assert caplog.records == []


def test_an_error_comes_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """As with any logger."""
    try:
        raise OSError("no disk")
    except OSError:
        _log.exception("it failed", extra={"action": "failed"})
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].getMessage() == "it failed"
