"""What Spark sees in Delta tables.

usage: spark_read.py JARS_DIR TABLE_DIR...

Prints one JSON object a table, like read_table.py: `table`, `rows`, and `columns` with null counts and, for integers, sums.
"""

import json
import sys

from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType
from spark_session import session


def main():
    jars, tables = sys.argv[1], sys.argv[2:]
    spark = session("alluvium-spark-read", jars)
    for table in tables:
        frame = spark.read.format("delta").load(table)
        wanted = [F.count(F.lit(1)).alias("rows")]
        for at, field in enumerate(frame.schema.fields):
            column = F.col(f"`{field.name}`")
            wanted.append(F.count(F.when(column.isNull(), 1)).alias(f"nulls{at}"))
            if isinstance(field.dataType, IntegralType):
                wanted.append(F.coalesce(F.sum(column), F.lit(0)).alias(f"sum{at}"))
        seen = frame.agg(*wanted).collect()[0].asDict()
        columns = {}
        for at, field in enumerate(frame.schema.fields):
            columns[field.name] = {"nulls": seen[f"nulls{at}"]}
            if f"sum{at}" in seen:
                columns[field.name]["sum"] = seen[f"sum{at}"]
        print(json.dumps({"table": table, "rows": seen["rows"], "columns": columns}), flush=True)


if __name__ == "__main__":
    main()
