"""Delta's change data feed of a table, as Spark reads it; arguments and output as those of read_feed.py, after the jars.

usage: spark_feed.py JARS_DIR TABLE_DIR FROM_VERSION COLUMN...
"""

import json
import sys

from spark_session import session


def main():
    jars, table, version, columns = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    spark = session("alluvium-spark-feed", jars)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version).load(table)
    rows = []
    for row in feed.select("_commit_version", "_change_type", *columns).collect():
        values = [None if row[name] is None else str(row[name]) for name in columns]
        rows.append((row["_commit_version"], row["_change_type"], values))
    for version, change, row in sorted(rows, key=json.dumps):
        print(json.dumps({"version": version, "change": change, "row": row}), flush=True)


if __name__ == "__main__":
    main()
