"""Keeps a copy of a dataset right by following its notifications with Spark Structured Streaming.

usage: consumer.py --lake LAKE --dataset DATASET --copy DIR --checkpoint DIR [--org COLUMN] [--jars DIR] [--follow]

LAKE is the namespace's directory in the project's storage, for example ./lake/default. The job streams `LAKE/notifications`, which is
append-only, and for each micro-batch reads only the partitions of `LAKE/DATASET` that the new notifications name (organisation
and event date), and puts them in place of what the copy holds of them. Spark's checkpoint remembers how far it has come.

A micro-batch may run again after a crash: then the same partitions are replaced again, by what stands in the table now, so the copy is
right all the same. The table may be ahead of the notifications that were read; the notifications of what is ahead come later and
replace these partitions once more. Without --follow the job ends when it has read what is there.
"""

import argparse
import pathlib

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def session(jars):
    builder = (
        SparkSession.builder.appName("alluvium-spark-consumer")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        # For a small lake on one machine; leave both out on a cluster.
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in sorted(pathlib.Path(jars).glob("*.jar"))))
    return builder.getOrCreate()


def replace_partitions(args, told: DataFrame, batch_id: int):
    """Puts the partitions that `told` names in place of the copy's."""
    spark = told.sparkSession
    named = told.where(F.col("table_name") == args.dataset).select("org_id", "event_date").distinct()
    partitions = [(row.org_id, row.event_date) for row in named.collect()]
    if not partitions:
        return
    data = spark.read.format("delta").load(f"{args.lake}/{args.dataset}")
    org_type = data.schema[args.org].dataType
    wanted = F.lit(False)
    for org_id, event_date in partitions:
        # Notifications spell organisations as text, whatever the type of the column.
        org = F.lit(org_id).cast(org_type)
        wanted = wanted | (F.col(args.org).eqNullSafe(org) & F.col("event_date").eqNullSafe(F.lit(event_date)))
    # The condition is on the partition columns, so Spark opens only the files of these organisations.
    rows = data.where(wanted)
    if not is_delta(spark, args.copy):
        rows.write.format("delta").partitionBy(args.org, "event_date").save(args.copy)
    else:
        rows.write.format("delta").mode("overwrite").option("mergeSchema", "true").option("replaceWhere", sql_of(data, args, partitions)).save(args.copy)
    print(f"micro-batch {batch_id}: {len(partitions)} partitions read again", flush=True)


def is_delta(spark, path):
    return spark._jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, path)


def sql_of(data, args, partitions):
    """The same condition as text, for `replaceWhere`."""
    kind = data.schema[args.org].dataType.simpleString()
    quoted = lambda text: "'" + str(text).replace("\\", "\\\\").replace("'", "\\'") + "'"
    conditions = [
        f"(`{args.org}` <=> CAST({quoted(org_id)} AS {kind}) AND event_date <=> DATE{quoted(event_date)})"
        for org_id, event_date in partitions
    ]
    return " OR ".join(conditions)


def main():
    parser = argparse.ArgumentParser(description="Keeps a copy of a dataset right by following its notifications.")
    parser.add_argument("--lake", required=True, help="the namespace's directory, e.g. ./lake/default")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--copy", required=True, help="the Delta table to keep")
    parser.add_argument("--checkpoint", required=True, help="where Spark remembers how far it has come")
    parser.add_argument("--org", default="org_id", help="the dataset's organisation column (default: org_id)")
    parser.add_argument("--jars", help="a directory with delta-spark and its jars, if Spark does not have them")
    parser.add_argument("--follow", action="store_true", help="go on until stopped")
    args = parser.parse_args()

    spark = session(args.jars)
    spark.sparkContext.setLogLevel("ERROR")
    told = spark.readStream.format("delta").load(f"{args.lake}/notifications")
    writer = told.writeStream.option("checkpointLocation", args.checkpoint).foreachBatch(
        lambda batch, batch_id: replace_partitions(args, batch, batch_id)
    )
    query = (writer.trigger(processingTime="1 second") if args.follow else writer.trigger(availableNow=True)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
