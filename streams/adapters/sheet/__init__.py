"""The sheet: SQLAlchemy Core on SQLite. `writing` fulfils `ports.Sheet`; `reading` is for everybody.

An import of SQLAlchemy costs 0.2 s, so nothing is imported here: name the module you need.
"""
