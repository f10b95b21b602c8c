"""What is too long for every run of the tests, and is run by hand."""

from __future__ import annotations

import os

import pytest

LONG = os.environ.get("ROWMILL_TEST_LONG") == "1"

by_hand = pytest.mark.skipif(not LONG, reason="by hand: ROWMILL_TEST_LONG=1")
