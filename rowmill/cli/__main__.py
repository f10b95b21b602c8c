"""The command `rowmill`."""

from __future__ import annotations

import sys

from rowmill.cli import app


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(app.main())


if __name__ == "__main__":
    main()
