"""Secrets from the environment: `ROWMILL_SECRET_<NAME>`, or `ROWMILL_SECRET_<NAME>_FILE` (R10)."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

from rowmill.errors import SecretMissing

PREFIX = "ROWMILL_SECRET_"
FILE_SUFFIX = "_FILE"

SEARCHED_CHARACTERS_MIN = 8
"""Shorter values are not searched for: "test" or "1234" stand in many honest answers, and each of
those would be thrown away after it was paid for."""


def variable(name: str) -> str:
    """Return the environment variable of a secret: upper case, `_` for anything but letters, digits."""
    return PREFIX + re.sub(r"[^A-Z0-9_]", "_", name.upper())


class EnvironmentSecrets:
    """Fulfils `ports.Secrets`. Values are read once: after a rotation the worker is restarted.

    `found_in` knows every secret of the environment, not only those asked for: a provider may echo
    another one's.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: `os.environ` unless given."""
        self._environment = dict(os.environ if environment is None else environment)
        self._values: dict[str, str] = {}
        self._traces: list[tuple[str, bytes]] | None = None

    def __repr__(self) -> str:
        return f"EnvironmentSecrets({', '.join(sorted(self._known()))})"

    def get(self, name: str) -> str:
        """Return the value. Raises: SecretMissing where it is not set, or no request could carry it."""
        wanted = variable(name)
        value = self._value(wanted)
        if not value:
            raise SecretMissing(
                f'secret "{name}" is not set. Set {wanted}, or {wanted}{FILE_SUFFIX} to a file that '
                "holds it, where the workers start. Nothing was called."
            )
        if not (value.isascii() and value.isprintable()):
            raise SecretMissing(
                f'secret "{name}" ({wanted}) holds a line break or a character that no HTTP header '
                "carries. Set it again. Nothing was called."
            )
        return value

    def found_in(self, data: bytes) -> str | None:
        """Return the name of a secret that `data` carries, None where it carries none.

        Looked for: the value as it is, escaped as in JSON, URL-encoded, and base64 at any place in
        the encoded text (plain and URL-safe alphabet). Values under 8 characters are not.
        """
        if self._traces is None:
            self._traces = [
                (variable_.removeprefix(PREFIX), trace)
                for variable_ in self._known()
                for trace in self._searched(variable_)
            ]
        for name, trace in self._traces:
            if trace in data:
                return name
        return None

    def _searched(self, wanted: str) -> set[bytes]:
        value = self._readable(wanted)
        return traces(value) if len(value) >= SEARCHED_CHARACTERS_MIN else set()

    def _known(self) -> set[str]:
        """Return the variables, `_FILE` cut off, of all secrets in the environment."""
        return {
            name.removesuffix(FILE_SUFFIX)
            for name in self._environment
            if name.startswith(PREFIX) and name != PREFIX
        }

    def _readable(self, wanted: str) -> str:
        """As `_value`, "" where the file can't be read: who needs that secret is told by `get`."""
        try:
            return self._value(wanted)
        except SecretMissing:
            return ""

    def _value(self, wanted: str) -> str:
        if wanted not in self._values:
            value = self._environment.get(wanted, "")
            path = self._environment.get(wanted + FILE_SUFFIX, "")
            if not value and path:
                value = _read(wanted, path)
            self._values[wanted] = value
        return self._values[wanted]


def _read(wanted: str, path: str) -> str:
    try:
        # Editors and `echo` end a file with a line break, which is no part of a secret.
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SecretMissing(
            f"{wanted}{FILE_SUFFIX}: can't read {path}: {reason}. Nothing was called."
        ) from error


def traces(value: str) -> set[bytes]:
    """Return the byte strings that give a value away: plain, escaped, URL-encoded, in base64."""
    escaped = json.dumps(value, ensure_ascii=False)[1:-1]
    texts = {value, escaped, escaped.replace("/", "\\/"), json.dumps(value)[1:-1]}
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        texts |= {encoded, re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)}
    return {text.encode() for text in texts} | set(_base64_traces(value.encode()))


def _base64_traces(value: bytes) -> Iterator[bytes]:
    """Yield what base64 of any text around `value` holds: three alignments, without the characters
    at both ends that depend on its neighbours."""
    for before in range(3):
        spare_bits = (before + len(value)) % 3
        encoded = b64encode(b"\0" * before + value).rstrip(b"=")
        trace = encoded[(0, 2, 3)[before] : len(encoded) - bool(spare_bits)]
        yield trace
        yield trace.replace(b"+", b"-").replace(b"/", b"_")
