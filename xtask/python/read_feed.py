"""Delta's change data feed of a table, as deltalake reads it.

usage: read_feed.py TABLE_DIR FROM_VERSION COLUMN...

Prints one JSON object a row: `version`, `change`, and `row`, the values of the columns as text (null is null). Rows come sorted.
"""

import json
import sys

import pyarrow as pa
from deltalake import DeltaTable


def main():
    table, version, columns = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    feed = pa.table(DeltaTable(table).load_cdf(starting_version=version).read_all())
    wanted = feed.select(["_commit_version", "_change_type", *columns]).to_pylist()
    rows = [(row["_commit_version"], row["_change_type"], [text(row[name]) for name in columns]) for row in wanted]
    for version, change, row in sorted(rows, key=json.dumps):
        print(json.dumps({"version": version, "change": change, "row": row}))


def text(value):
    return None if value is None else str(value)


if __name__ == "__main__":
    main()
