"""How close a lane keeps to its limits: N calls against a provider that enforces the same.

    python -m bench.paced --calls 2000 --limits 200/s --workers 1 --rounds 3
    python -m bench.paced --calls 10000 --limits 1000/s --batch 50

Each round is a fresh home: broker, roles, `--workers` dispatch workers. One JSON line a round: seconds
from the first call to the last as the provider saw them (`span_s`), the least that the limits allow
in bursts (`least_s`), 429s, and calls. The last line has minimum, median and maximum of span / least.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

from bench.provider import free_port
from rowmill.plays.providers import rate

ROOT = Path(__file__).resolve().parents[1]
PLAY = ROOT / "examples" / "paced" / "play.py"


def least_s(calls: int, limits: str) -> float:
    """Return how long `calls` take from the first to the last, by sliding windows alone, each call as
    soon as they let it: whole bursts at once."""
    windows = [rate(text.strip()) for text in limits.split(",")]
    times: list[float] = []
    for number in range(calls):
        bounds = [times[-one.calls] + one.per_s for one in windows if number >= one.calls]
        times.append(max([times[-1] if times else 0.0, *bounds]))
    return times[-1]


def measure(
    calls: int, limits: str, workers: int, latency_ms: int, batch: int = 1
) -> dict[str, Any]:
    """Run one round. Raises: subprocess.CalledProcessError where a command fails."""
    with tempfile.TemporaryDirectory() as folder:
        home, port = Path(folder), free_port()
        table = home / "in.csv"
        table.write_text("symbol\n" + "".join(f"S{number}\n" for number in range(calls)))
        env = {**os.environ, "ROWMILL_HOME": str(home / "home")}
        env["ROWMILL_KAFKA_PORT"] = str(free_port())
        rowmill = [sys.executable, "-P", "-m", "rowmill"]
        serve = ["provider", "serve", "--port", str(port), "--limits", limits]
        provider = subprocess.Popen(
            [*rowmill, *serve, "--latency-ms", str(latency_ms)],
            stdout=subprocess.DEVNULL, env=env,
        )  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        try:
            up = ["up", "--plays", str(PLAY.parent), "--dispatch", str(workers)]
            subprocess.run([*rowmill, *up], env=env, check=True, stdout=subprocess.DEVNULL)
            run = ["run", str(PLAY), "--input", str(table), "--concurrency", "1000", "--json"]
            params = ["--param", f"base_url={url}", "--param", f"limits={limits}"]
            params += ["--param", f"batch={batch}"]
            subprocess.run(
                [*rowmill, *run, *params], env=env, check=True, stdout=subprocess.DEVNULL
            )
            with urllib.request.urlopen(f"{url}/stats", timeout=10) as answer:
                stats = json.load(answer)
        finally:
            subprocess.run([*rowmill, "down"], env=env, check=False, stdout=subprocess.DEVNULL)
            provider.terminate()
            provider.wait()
    least = least_s(-(-calls // batch), limits) or 1
    return {
        "rows": calls,
        "calls": stats["calls"],
        "rate_limited": stats["rate_limited"],
        "span_s": stats["span_s"],
        "least_s": least,
        "ratio": round(stats["span_s"] / least, 4),
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--limits", default="200/s")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--latency-ms", type=int, default=50)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    ratios = []
    for _ in range(wanted.rounds):
        found = measure(
            wanted.calls, wanted.limits, wanted.workers, wanted.latency_ms, wanted.batch
        )
        ratios.append(found["ratio"])
        print(json.dumps(found), flush=True)
    print(json.dumps({"ratio": [min(ratios), median(ratios), max(ratios)]}))


if __name__ == "__main__":
    main()
