"""The one name mapping (D7, I5): what a header is called in a row, in the sheet and in the export.

Three names, all derived here and nowhere else:

* *field*: the key under which a play sees an input cell. It is the header as it stands; a header
  that stands twice gets `_2`, `_3`; a blank one is called after its place. Never onto a name that
  exists.
* *sheet name*: the SQL column, of a field or of an output column. Letters, digits and `_`, at most
  63 bytes, no SQL keyword, usable without quotes in SQLite, different from all others even where
  case is folded. It keeps the case of the header; PostgreSQL wants quotes for capitals.
* *export name*: the header of an output column in the exported file. Input columns keep their own.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from rowmill.streams.core.columns import is_runtime_only

SHEET_NAME_BYTES_MAX = 63
"""PostgreSQL cuts longer identifiers (NAMEDATALEN - 1) and then finds two of them equal."""

INTERNAL_PREFIX = "_rowmill_"
"""The sheet's own columns begin so; no other column ever does."""

_RESERVED = frozenset(
    # SQL:2016 words that PostgreSQL 17 (appendix C, "reserved") or SQLite (lang_keywords) refuse as
    # a bare column name, and the system columns of both.
    """
    add all alter analyse analyze and any array as asc asymmetric authorization autoincrement
    between binary both case cast check collate collation column commit concurrently constraint
    create cross current_catalog current_date current_role current_schema current_time
    current_timestamp current_user default deferrable delete desc distinct do drop else end escape
    except exists false fetch for foreign freeze from full grant group having ilike in index
    initially inner insert intersect into is isnull join lateral leading left like limit localtime
    localtimestamp natural not nothing notnull null offset on only or order outer overlaps placing
    primary raise references returning right select session_user set similar some symmetric
    system_user table tablesample then to trailing transaction true union unique update user using
    values variadic verbose when where window with
    cmax cmin ctid oid rowid _rowid_ tableoid xmax xmin
    """.split()  # noqa: SIM905 - a word list, not a page of quotes
)


@dataclass(frozen=True, slots=True)
class Columns:
    """What every column of one dataset is called. Mappings keep the order of their columns.

    `inputs`: field -> sheet name. `outputs`: output column -> sheet name. `exports`: output column
    -> header in the export. `fields`, `output_of`: the first two, turned round.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    exports: Mapping[str, str]
    fields: Mapping[str, str] = field(init=False)
    output_of: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _turned(self.inputs))
        object.__setattr__(self, "output_of", _turned(self.outputs))

    @property
    def sheet(self) -> tuple[str, ...]:
        """All sheet names: inputs, then outputs, each in order."""
        return (*self.inputs.values(), *self.outputs.values())


def sheet_columns(
    input_headers: Sequence[str],
    output_columns: Sequence[str],
    *,
    replace: Collection[str] = (),
) -> Columns:
    """Return what the columns of a dataset are called in the sheet and in the export.

    Args: `input_headers` in order, fields or raw headers (`field_names` is applied, which leaves
    fields as they are); `output_columns` in order, distinct; runtime-only ones are left out (D7).
    `replace`: output columns that are exported in place of the input column of the same name.

    An output never changes the name of an input: adding columns to a play leaves a sheet's input
    columns alone.

    >>> columns = sheet_columns(["name", "a.b", "a_b", "select"], ["name", "size"])
    >>> dict(columns.inputs)
    {'name': 'name', 'a.b': 'a_b_2', 'a_b': 'a_b', 'select': 'select_'}
    >>> dict(columns.outputs), dict(columns.exports)
    ({'name': 'name_2', 'size': 'size'}, {'name': 'name_2', 'size': 'size'})
    """
    fields = field_names(input_headers)
    outputs = [name for name in output_columns if not is_runtime_only(name)]
    in_sheet = _Names(bytes_max=SHEET_NAME_BYTES_MAX)
    in_export = _Names()
    in_export.give_all(fields, fields)
    placed = {name: name for name in outputs if name in replace and name in fields}
    added = [name for name in outputs if name not in placed]
    placed.update(zip(added, in_export.give_all(added, added), strict=True))
    return Columns(
        inputs=_paired(fields, in_sheet.give_all(fields, [sheet_name(name) for name in fields])),
        outputs=_paired(
            outputs, in_sheet.give_all(outputs, [sheet_name(name) for name in outputs])
        ),
        exports=_paired(outputs, [placed[name] for name in outputs]),
    )


def field_names(headers: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct names under which a play sees the cells below `headers`.

    >>> field_names(["email", "phone", "email", "", "email_2", "email"])
    ('email', 'phone', 'email_3', 'column_4', 'email_2', 'email_4')
    """
    wanted = [name if name.strip() else f"column_{place}" for place, name in enumerate(headers, 1)]
    return _Names().give_all(headers, wanted)


def sheet_name(name: str) -> str:
    """Return `name` as an SQL identifier that needs no quotes, 1 to 63 bytes of UTF-8.

    Different names may give the same identifier: `sheet_columns` keeps them apart. An identifier
    that this returned is returned as it is.

    >>> sheet_name("og (product.custom.og)"), sheet_name("2019 Straße"), sheet_name("Order")
    ('og_product_custom_og', '_2019_Straße', 'Order_')
    """
    composed = unicodedata.normalize("NFC", name)
    words = "".join(char if ("a" + char).isidentifier() else " " for char in composed).split()
    plain = "_".join(words) or "column"
    if plain.casefold().startswith(INTERNAL_PREFIX[:-1]):
        plain = "x" + plain
    if not plain[0].isidentifier():
        plain = "_" + plain
    if plain.casefold() in _RESERVED:
        plain += "_"
    return _cut(plain, SHEET_NAME_BYTES_MAX)


class _Names:
    """Names given so far in one place (rows, sheet or export); none is given twice.

    With `bytes_max` it names SQL columns: no longer than that, and case is folded to compare.
    """

    def __init__(self, bytes_max: int | None = None) -> None:
        self._bytes_max = bytes_max
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    def give_all(self, names: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
        """Return a free name for each of `names`: what it wants, else that with a number.

        Those that want exactly their own name choose first, so that a made-up name never takes one
        that exists.
        """
        own = [
            want if name == want and self._take(want) else None
            for name, want in zip(names, wanted, strict=True)
        ]
        return tuple(
            name if name is not None else self._free(want)
            for name, want in zip(own, wanted, strict=True)
        )

    def _take(self, name: str) -> bool:
        folded = self._fold(name)
        if folded in self._taken:
            return False
        self._taken.add(folded)
        return True

    def _free(self, want: str) -> str:
        if self._take(want):
            return want
        # The number given last is remembered: a thousand equal headers stay linear.
        for number in itertools.count(self._numbers.get(want, 2)):
            suffix = f"_{number}"
            stem = want if self._bytes_max is None else _cut(want, self._bytes_max - len(suffix))
            if self._take(stem + suffix):
                self._numbers[want] = number + 1
                return stem + suffix
        raise AssertionError("unreachable: numbers do not end")

    def _fold(self, name: str) -> str:
        return name if self._bytes_max is None else name.casefold()


def _cut(text: str, bytes_max: int) -> str:
    """Return the longest beginning of `text` that has at most `bytes_max` bytes of UTF-8."""
    return text.encode()[:bytes_max].decode(errors="ignore")


def _paired(names: Sequence[str], given: Sequence[str]) -> Mapping[str, str]:
    return MappingProxyType(dict(zip(names, given, strict=True)))


def _turned(mapping: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType({given: name for name, given in mapping.items()})
