"""What a command ends with: one sentence on standard error, and the exit code of its class.

1 rows failed or wait, or a fault of ours; 2 usage, play or input; 3 infrastructure; 130 Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import typer

from rowmill.cli.words import plain
from rowmill.errors import InfrastructureError, Interrupted, RowmillError, UsageError


def exit_code_of(error: BaseException) -> int:
    """Say what happened on standard error; return the exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, RowmillError):
        _say(str(error))
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        _say("Stopped.")
        return Interrupted.exit_code
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has gone; nobody is left to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if _is_usage(error):
        error.show(file=sys.stderr)  # type: ignore[attr-defined]  # click's, vendored by typer
        return UsageError.exit_code
    if (wrong := _wrong_setting(error)) is not None:
        _say(wrong)
        return UsageError.exit_code
    if _is_infrastructure(error):
        _say(f"{type(error).__name__}: {error}. {_logged(error)}")
        return InfrastructureError.exit_code
    _say(f"This is a fault in Rowmill: {type(error).__name__}: {error}. {_logged(error)}")
    return RowmillError.exit_code


def _say(sentence: str) -> None:
    lines = (plain(line, chars_max=2_000) for line in sentence.splitlines())
    print("\n".join(lines), file=sys.stderr)


def _is_usage(error: BaseException) -> bool:
    # typer carries a copy of click of its own: its classes have no public name.
    return any(kind.__name__ == "ClickException" for kind in type(error).__mro__)


def _wrong_setting(error: BaseException) -> str | None:
    if type(error).__name__ != "ValidationError" or getattr(error, "title", "") != "Settings":
        return None
    first = error.errors(include_url=False)[0]  # type: ignore[attr-defined]  # pydantic's, not imported for this
    name = "_".join(str(part) for part in first["loc"]).upper()
    return (
        f"Setting ROWMILL_{name}: {first['msg']} (given: {_brief(first['input'])}). Correct it in the "
        "environment or in rowmill.toml. Nothing was called."
    )


def _brief(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:79] + "…"


def _is_infrastructure(error: BaseException) -> bool:
    return isinstance(error, OSError) or any(
        kind.__name__ == "KafkaError" for kind in type(error).__mro__
    )


def _logged(error: BaseException) -> str:
    """Keep the traceback; return where it is."""
    text = "".join(traceback.format_exception(error))
    path = _home() / "logs" / "rowmill-error.log"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError:
        return f"Traceback:\n{text}"
    return f"The traceback is in {path}."


def _home() -> Path:
    named = os.environ.get("ROWMILL_HOME")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_state_dir("rowmill"))
