"""Two dependent calls for each of N rows, end to end, measured: prints one JSON line.

    python bench/two_calls.py --rows 10000
    python bench/two_calls.py --rows 10000 --kill-at 0.5

Any Python 3 may start it: it goes on in the project's environment. docs/benchmarks.md says what is
run, what each figure means, and how to set it beside other products.
"""

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Replace this process by `bench.run` under the project's Python; arguments go on as they are."""
    python = _ROOT / ".venv" / "bin" / "python"
    if not python.exists():
        print(f"No {python}. `bash ops/test.sh unit` makes the environment.", file=sys.stderr)
        sys.exit(3)
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    os.execve(python, [str(python), "-P", "-m", "bench.run", *sys.argv[1:]], environment)


if __name__ == "__main__":
    main()
