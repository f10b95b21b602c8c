"""Simulated seeds by hand:  python -m tests.simulation --seed 7  |  --seeds 1000000 [--from 0] [--jobs 2]"""

from __future__ import annotations

import sys

from tests.simulation.command import main

sys.exit(main(sys.argv[1:]))
