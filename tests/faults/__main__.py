"""Replay seeds by hand:  python -m tests.faults --seed 7  |  --seeds 300 [--from 0] [--jobs 2]"""

from __future__ import annotations

import sys

from tests.faults.seeds.command import main

sys.exit(main(sys.argv[1:]))
