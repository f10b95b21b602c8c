"""`python -m rowmill`: the command line, also where no script is installed."""

from __future__ import annotations

from rowmill.cli.__main__ import main

if __name__ == "__main__":
    main()
