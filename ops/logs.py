"""The one place where logging is set up: logfmt lines on standard error, without secrets."""

from __future__ import annotations

import base64
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

import structlog

from rowmill.settings import Settings
from rowmill.streams.adapters.secrets import traces

_SECRET_PREFIX = "ROWMILL_SECRET_"
_SECRET_FILE_SUFFIX = "_FILE"
# A shorter value would blank out ordinary words; a secret of this length protects nothing.
_SECRET_LENGTH_MIN = 4

# What a provider answers may end in a log; a terminal that shows it must not obey it.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}

# aiokafka builds a record for every send at DEBUG, 10 % of a worker's CPU (faust-notes.md), and
# Faust repeats itself: what they say below WARNING is no user's business.
_QUIET = ("aiokafka", "faust", "mode", "asyncio", "httpx", "httpcore", "sqlalchemy")


def secrets(settings: Settings, variables: Mapping[str, str]) -> list[str]:
    """Return every secret's value that this process was given, in no order.

    Files named by `ROWMILL_SECRET_<NAME>_FILE` are read; one that can't be is left to the code
    that needs it.
    """
    found = [settings.kafka_sasl_password.get_secret_value()]
    for name, value in variables.items():
        if not name.startswith(_SECRET_PREFIX):
            continue
        if name.endswith(_SECRET_FILE_SUFFIX):
            try:
                with open(value, encoding="utf-8") as file:
                    value = file.read().strip()
            except (OSError, UnicodeDecodeError):
                continue
        found.append(value)
    return [value for value in found if len(value) >= _SECRET_LENGTH_MIN]


def redactor(values: Iterable[str]) -> Callable[[str], str]:
    """Return a function that blanks out these values: plain, URL-quoted and in base64.

    In base64 also where a value stands amid other text, such as `user:password` of basic auth.
    """
    forms = set[str]()
    for value in values:
        forms |= {base64.b64encode(value.encode()).decode()}
        forms |= {trace.decode() for trace in traces(value) if len(trace) >= _SECRET_LENGTH_MIN}
    longest_first = sorted(forms, key=len, reverse=True)

    def redact(text: str) -> str:
        for form in longest_first:
            text = text.replace(form, "[secret]")
        return text

    return redact


def configure(settings: Settings) -> None:
    """Send structlog's and the libraries' lines to standard error from `settings.log` upwards."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    redact = redactor(secrets(settings, os.environ))
    logfmt = structlog.processors.LogfmtRenderer(
        key_order=["timestamp", "level", "event"], bool_as_flag=False
    )

    def render(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        line = logfmt(logger, method, {_key(name): event[name] for name in event})
        return redact(line).translate(_CONTROLS)

    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    level = logging.getLevelNamesMapping()[settings.log.upper()]
    logging.basicConfig(handlers=[lines], level=level, force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _key(name: str) -> str:
    return "_".join(name.split())
