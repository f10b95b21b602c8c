"""Plays as this worker can load them: from files below its play folders, checked by digest.

Play code never travels through a topic. A run whose play is missing here, or has another digest, is
left alone: its rows wait, and the log says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from rowmill.errors import PlayError
from rowmill.plays.loading import LoadedPlay, load
from rowmill.topics.contracts import PlayReference, RunRecord

PLAYS_KEPT = 64
"""Loaded plays that are remembered; each holds a module."""


class PlayShelf:
    """Loads the play of a run once, and remembers runs that it can't serve."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._plays: dict[str, LoadedPlay] = {}
        self._missing: dict[str, str] = {}

    def serves(self, run: RunRecord) -> bool:
        """Say whether this worker can run the rows of `run`."""
        return self._find(run) is not None

    def play(self, run: RunRecord) -> LoadedPlay:
        """Return the run's play. Raises: PlayError where `serves` is false."""
        found = self._find(run)
        if found is None:
            raise PlayError(f"no play {run.play.name} (digest {run.play.digest}) on this worker")
        return found

    def why_not(self, run: RunRecord) -> str:
        """Return why `serves` was false, "" where it was not."""
        return self._missing.get(run.play.model_dump_json(), "")

    def look_again(self, run: RunRecord) -> None:
        """Forget that the run's play was missing: it may have been put there meanwhile."""
        self._missing.pop(run.play.model_dump_json(), None)

    def _find(self, run: RunRecord) -> LoadedPlay | None:
        key = run.play.model_dump_json()
        if key not in self._plays and key not in self._missing:
            found = self._load(run.play)
            if isinstance(found, str):
                self._missing[key] = found
            else:
                while len(self._plays) >= PLAYS_KEPT:
                    del self._plays[next(iter(self._plays))]
                self._plays[key] = found
        return self._plays.get(key)

    def _load(self, wanted: PlayReference) -> LoadedPlay | str:
        params = {name: str(value) for name, value in wanted.params.items()}
        seen = []
        for place in self._places(wanted):
            try:
                play = load(place, params)
            except PlayError as error:
                seen.append(str(error))
                continue
            if play.reference.digest == wanted.digest:
                return play
            seen.append(f"{place} has digest {play.reference.digest[:8]}")
        folders = ", ".join(str(folder) for folder in self._folders)
        found = "; ".join(seen) or f"no such file below {folders}"
        return f"no worker has play {wanted.name} (digest {wanted.digest[:8]}): {found}"

    def _places(self, wanted: PlayReference) -> Iterator[str]:
        """Yield what may be the play: its module, or the longest part of its path below a folder."""
        if wanted.module is not None:
            yield wanted.module
        if wanted.path is None:
            return
        parts = PurePath(wanted.path).parts
        for folder in self._folders:
            for start in range(len(parts)):
                path = folder.joinpath(*parts[start:])
                if (found := _file_below(folder, path)) is not None:
                    yield str(found)
                    break


def _file_below(folder: Path, path: Path) -> Path | None:
    """Return the file where it is one, in `folder`; a path of a record may be none of any file."""
    try:
        found = path.resolve()
        return found if found.is_relative_to(folder) and found.is_file() else None
    except (OSError, RuntimeError, ValueError):  # a name too long, a loop of links, a NUL
        return None
