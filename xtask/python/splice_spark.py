"""Data files by Spark, and whether what the splice writer made of them is what Spark sees as the naive rewrite.

usage: splice_spark.py JARS_DIR make DIR | splice_spark.py JARS_DIR check DIR

As splice_files.py, whose columns and edits these are. The files are in Spark's forms of timestamps (96 bits, microseconds,
milliseconds), of decimals and lists (of today and legacy), with dictionaries and without, in both page versions. `i` is a column of
the rows' numbers, for the check.
"""

import pathlib
import shutil
import sys

from pyspark.sql import functions as F
from spark_session import session

ROWS = 500
FORMS = {
    "96-bits": {"spark.sql.parquet.outputTimestampType": "INT96"},
    "96-bits-less": {"spark.sql.parquet.outputTimestampType": "INT96"},
    "micros-less": {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"},
    "millis-less": {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"},
    "legacy": {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.sql.parquet.writeLegacyFormat": "true"},
    "legacy-less": {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.sql.parquet.writeLegacyFormat": "true"},
    "v2-less": {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"},
    "plain-gzip-less": {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"},
}
OPTIONS = {
    "v2-less": {"parquet.writer.version": "v2", "compression": "zstd"},
    "plain-gzip-less": {"parquet.enable.dictionary": "false", "compression": "gzip"},
}


def rows(spark):
    def every(step, value, kind):
        return f"CAST(IF(i % {step} = 0, NULL, {value}) AS {kind})"

    columns = [
        every(13, "concat('id-', i % 97)", "STRING") + " AS id",
        every(17, "i * 31 % 1009", "BIGINT") + " AS n",
        every(19, "i / 7", "DOUBLE") + " AS x",
        every(23, "i % 3 = 0", "BOOLEAN") + " AS flag",
        every(29, "date_add(DATE'2024-01-01', CAST(i AS INT))", "DATE") + " AS day",
        every(31, "timestamp_millis(1704067200000 + i * 977)", "TIMESTAMP") + " AS at",
        every(37, "i * 7 / 100", "DECIMAL(10,2)") + " AS price",
        every(41, "encode(concat('r', i), 'UTF-8')", "BINARY") + " AS raw",
        every(43, "transform(sequence(0, i % 3), t -> IF(t = 2, NULL, concat('t', t)))", "ARRAY<STRING>") + " AS tags",
        every(47, "named_struct('city', concat('c', i % 5), 'zip', IF(i % 3 = 0, NULL, i))", "STRUCT<city: STRING, zip: BIGINT>")
        + " AS place",
        every(53, "map('k', i)", "MAP<STRING, BIGINT>") + " AS counts",
        "i",
    ]
    return spark.range(ROWS).withColumnRenamed("id", "i").selectExpr(*columns)


def make(spark, directory):
    for name, settings in FORMS.items():
        for key, value in settings.items():
            spark.conf.set(key, value)
        writer = rows(spark).coalesce(1).write
        for key, value in OPTIONS.get(name, {}).items():
            writer = writer.option(key, value)
        made = directory / f"{name}.made"
        writer.parquet(str(made))
        for key in settings:
            spark.conf.unset(key)
        (part,) = made.glob("part-*.parquet")
        part.rename(directory / f"{name}.parquet")
        shutil.rmtree(made)
        print(f"{name}.parquet")


def check(spark, directory):
    files = sorted(directory.glob("*.parquet"))
    wrong = 0
    for source in files:
        before, after = (spark.read.parquet(str(path)) for path in (source, directory / "out" / source.name))
        hit = F.col("i") % 5 == 1
        expected = (
            before.withColumn("id", F.when(hit, F.concat(F.lit("new-"), F.col("i"))).otherwise(F.col("id")))
            .withColumn("_original", F.when(hit, F.concat(F.lit('{"i":'), F.col("i"), F.lit("}"))))
            .withColumn("n", F.when(F.col("i") % 14 == 2, None).when(F.col("i") % 7 == 2, -F.col("i")).otherwise(F.col("n")))
        )
        if "less" in source.name:
            expected = expected.where("i % 11 <> 3")
        expected = [row.asDict(recursive=True) for row in expected.collect()]
        found = [row.asDict(recursive=True) for row in after.collect()]
        if len(found) != len(expected):
            print(f"{source.name}: Spark reads {len(found)} rows, not {len(expected)}")
            wrong += 1
        for column in expected[0]:
            differ = [row["i"] for row, other in zip(expected, found) if row[column] != other.get(column)]
            if differ:
                print(f"{source.name}: Spark reads other values of {column} in {len(differ)} rows, the first is {differ[0]}")
                wrong += 1
        if after.where("id = 'new-21'").count() != 1:
            print(f"{source.name}: Spark does not find a new id")
            wrong += 1
    print(f"{len(files)} files, {wrong} differences")


def main():
    spark = session("alluvium-splice-spark", sys.argv[1])
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    {"make": make, "check": check}[sys.argv[2]](spark, pathlib.Path(sys.argv[3]))


if __name__ == "__main__":
    main()
