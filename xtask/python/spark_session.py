"""The Spark session of the scripts beside this one: Delta, no network but loopback, little parallelism."""

import pathlib

from pyspark.sql import SparkSession


def session(name, jars):
    """A session with the jars of a directory."""
    spark = (
        SparkSession.builder.appName(name)
        .config("spark.jars", ",".join(str(jar) for jar in sorted(pathlib.Path(jars).glob("*.jar"))))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
