"""The submitter: a process that is up and connected, waits for the word, then submits a run.

Prints READY once it could begin, reads one line, and prints the run's report at the end.
"""

from __future__ import annotations

import argparse
import sys

import uvloop

from bench.work import PLAY, RUN, symbols
from rowmill.client.mill import connect
from rowmill.ops import logs
from rowmill.plays.loading import LoadedPlay, load
from rowmill.settings import Settings
from rowmill.topics.contracts import RunOptions


async def submit(settings: Settings, play: LoadedPlay, rows: int, concurrency: int) -> str:
    """Wait for the word, run the play over `rows` rows, return the report as JSON."""
    async with connect(settings) as mill:
        print("READY", flush=True)
        sys.stdin.readline()
        values = [{"id": index, "symbol": symbol} for index, symbol in enumerate(symbols(rows))]
        options = RunOptions(concurrency=concurrency, on_row_error="continue")
        run = await mill.start(play, values, run_id=RUN, options=options)
        try:
            return (await run.done()).to_json()
        finally:
            await run.close()


def main() -> None:
    """Submit one run as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--base-url", required=True)
    given = parser.parse_args()
    params = {"base_url": given.base_url, "concurrency": str(given.concurrency)}
    play = load(str(PLAY), params)
    settings = Settings()
    logs.configure(settings)  # to standard error: nothing but our two lines on standard output
    print(uvloop.run(submit(settings, play, given.rows, given.concurrency)), flush=True)


if __name__ == "__main__":
    main()
