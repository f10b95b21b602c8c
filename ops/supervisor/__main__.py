"""`python -m rowmill.ops.supervisor PLAN`: started by `rowmill up` and `rowmill run` only."""

from __future__ import annotations

import sys

from rowmill.ops.supervisor.supervisor import Plan, main
from rowmill.settings import Settings

if __name__ == "__main__":
    sys.exit(main(Plan.model_validate_json(sys.argv[1]), Settings()))
