"""What is sent: URL, headers and body of a tool's call, most of it worked out once for each tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

from rowmill.plays.specs import Auth, ProviderSpec, ToolSpec
from rowmill.streams.adapters.http_body import ACCEPT_ENCODING
from rowmill.streams.core.identity import canonical
from rowmill.streams.ports import Secrets

USER_AGENT = f"rowmill/{version('rowmill')}"

Headers = list[tuple[str, str]]


class Route:
    """How one tool's calls leave. `url` and `headers` may hold a secret's value: never print them."""

    def __init__(self, provider: ProviderSpec, tool: ToolSpec, secrets: Secrets) -> None:
        """Raises: SecretMissing."""
        self.method = tool.method
        self.url = provider.base_url + tool.path
        self.headers: Headers = [
            ("Accept", "application/json"),
            ("Accept-Encoding", ACCEPT_ENCODING),
            ("User-Agent", USER_AGENT),
            *provider.headers.items(),
        ]
        if self.method != "GET":
            self.headers.append(("Content-Type", "application/json"))
        if provider.auth is not None:
            self._authorise(provider.auth, secrets.get(provider.auth.secret))

    def url_of(self, input_: Mapping[str, Any]) -> str:
        """Return a GET's URL. Raises: as `body`."""
        return _with_query(self.url, tuple(_parameters(input_)))

    def body(self, input_: Mapping[str, Any]) -> bytes:
        """Return the body; the same input gives the same bytes, whatever its order (INV9).

        Raises: ValueError where the input holds NaN or Infinity, TypeError where it is no JSON.
        """
        return canonical(input_)

    def _authorise(self, auth: Auth, value: str) -> None:
        if auth.kind == "bearer":
            self.headers.append((auth.name, f"Bearer {value}"))
        elif auth.kind == "header":
            self.headers.append((auth.name, value))
        else:
            self.url = _with_query(self.url, ((auth.name, value),))


def _with_query(url: str, parameters: tuple[tuple[str, str], ...]) -> str:
    if not parameters:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


def _parameters(input_: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a GET's query: a list as repeated names, None left out, nested values as JSON."""
    for name, value in sorted(input_.items()):
        for one in value if isinstance(value, list | tuple) else (value,):
            if one is not None:
                yield name, one if isinstance(one, str) else canonical(one).decode()
