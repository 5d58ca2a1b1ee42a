"""Changes a table with Spark, and says what each version holds.

usage: spark_write.py JARS_DIR TABLE_DIR OPERATION...

Operations: update, delete, merge, optimize, restore (to the version before), vectors (turns deletion vectors on), feed (turns Delta's change data feed on).
Prints a JSON object for each version: `version` and `rows`, each row as [id, orgId, isRobot, _offset].
"""

import json
import sys

from spark_session import session

COLUMNS = ["id", "orgId", "isRobot", "_offset"]


def statements(table, version):
    """The SQL of each operation."""
    return {
        "update": f"UPDATE {table} SET isRobot = NOT coalesce(isRobot, false) WHERE id % 2 = 1",
        "delete": f"DELETE FROM {table} WHERE id % 5 = 3",
        "merge": f"""
            MERGE INTO {table} t USING (SELECT id, true AS robot FROM range(0, 30) WHERE id % 4 < 2) s ON t.id = s.id
            WHEN MATCHED AND t.id % 8 = 0 THEN DELETE
            WHEN MATCHED THEN UPDATE SET isRobot = s.robot
            WHEN NOT MATCHED THEN INSERT (id, orgId, isRobot) VALUES (s.id, 'c', s.robot)""",
        "optimize": f"OPTIMIZE {table}",
        "restore": f"RESTORE TABLE {table} TO VERSION AS OF {version - 1}",
        "vectors": f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "feed": f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    }


def main():
    jars, path, operations = sys.argv[1], sys.argv[2], sys.argv[3:]
    spark = session("alluvium-spark-write", jars)
    table = f"delta.`{path}`"
    newest = lambda: spark.sql(f"DESCRIBE HISTORY {table}").agg({"version": "max"}).collect()[0][0]
    for operation in operations:
        spark.sql(statements(table, newest())[operation])
    for version in range(newest() + 1):
        frame = spark.read.format("delta").option("versionAsOf", version).load(path).select(*COLUMNS)
        print(json.dumps({"version": version, "rows": [list(row) for row in frame.collect()]}), flush=True)


if __name__ == "__main__":
    main()
