"""Changes a table as another program does, and says what each version holds.

usage: foreign_writes.py TABLE_DIR OPERATION...

Operations: update, delete, append (rows that are there once more), overwrite, optimize, feed (turns Delta's change data feed on). Prints a JSON object
for each version from the first that is still there: `version` and `rows`, each row as [id, orgId, isRobot, _offset].
"""

import json
import os
import sys

from deltalake import DeltaTable, write_deltalake

COLUMNS = ["id", "orgId", "isRobot", "_offset"]


def update(path):
    DeltaTable(path).update(predicate="id % 2 = 1", updates={"isRobot": "NOT coalesce(\"isRobot\", false)"})


def delete(path):
    DeltaTable(path).delete("id % 5 = 3")


def append(path):
    rows = DeltaTable(path).to_pyarrow_table()
    write_deltalake(path, rows.slice(0, 2), mode="append")


def overwrite(path):
    rows = DeltaTable(path).to_pyarrow_table()
    write_deltalake(path, rows.slice(1), mode="overwrite")


def optimize(path):
    DeltaTable(path).optimize.compact()


def feed(path):
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})


def main():
    path, operations = sys.argv[1], sys.argv[2:]
    for operation in operations:
        {"update": update, "delete": delete, "append": append, "overwrite": overwrite, "optimize": optimize, "feed": feed}[operation](path)
    for version in range(DeltaTable(path).version() + 1):
        table = DeltaTable(path, version=version).to_pyarrow_table().select(COLUMNS)
        rows = [list(row.values()) for row in table.to_pylist()]
        print(json.dumps({"version": version, "rows": rows}), flush=True)
    # Threads of the libraries now and then bring a process down while it ends.
    os._exit(0)


if __name__ == "__main__":
    main()
