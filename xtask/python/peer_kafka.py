"""The peer of `bench kafka`: Spark Structured Streaming takes a topic into a Delta table partitioned by organisation.

usage: peer_kafka.py JARS_DIR BOOTSTRAP TOPIC OUT_DIR [RUNS]

As a careful user would: the schema is given, malformed lines would be null, `availableNow` ends at what is there at the start. The first
run also warms the JVM up. Prints {"rows": N, "elapsed_us": M} with the fastest of the runs, without Spark's own start.
"""

import json
import pathlib
import sys
import time

from pyspark.sql import functions as F
from spark_session import session

SCHEMA = (
    "event_id string, org_id string, occurred_at timestamp, type string, lead_id string, user_id string, cadence_id string, "
    "cadence_name string, subject string, url string, ip string, duration_ms bigint, meta struct<channel: string, score: double>"
)


def main():
    jars, bootstrap, topic, out = sys.argv[1:5]
    runs = int(sys.argv[5]) if len(sys.argv) > 5 else 2
    spark = session("peer-kafka", jars)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    times = []
    for run in range(runs):
        table = f"{out}/table-{run}"
        begin = time.perf_counter()
        records = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        rows = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"), "partition", "offset")
        rows = rows.select("row.*", F.col("partition").alias("_partition"), F.col("offset").alias("_offset"))
        rows = rows.withColumn("event_date", F.to_date("occurred_at"))
        query = (
            rows.writeStream.format("delta")
            .partitionBy("org_id")
            .option("checkpointLocation", f"{out}/checkpoint-{run}")
            .trigger(availableNow=True)
            .start(table)
        )
        query.awaitTermination()
        times.append(time.perf_counter() - begin)
    # What stands in the log is enough to count, and is no part of the time.
    count = 0
    for entry in pathlib.Path(table, "_delta_log").glob("*.json"):
        for line in entry.read_text().splitlines():
            add = json.loads(line).get("add")
            if add:
                count += json.loads(add["stats"])["numRecords"]
    print(json.dumps({"rows": count, "elapsed_us": int(min(times) * 1e6)}))
    spark.stop()


if __name__ == "__main__":
    main()
