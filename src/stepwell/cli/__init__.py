"""The command line: ``stepwell worker``, ``runs``, ``db`` and ``demo``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and end the process with its exit code (see ``exits``)."""
    try:
        from stepwell.cli.program import run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("click", "rich"):
            raise
        sys.stderr.write(
            f"Error: the command line needs {missing}, which is not installed. "
            "Run: pip install 'stepwell[cli]'\n"
        )
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
