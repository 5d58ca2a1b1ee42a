"""The benchmark's peer: DuckDB reads JSON lines, deltalake writes them as a Delta table partitioned by organisation.

usage: peer_ingest.py [--stream] [--feed] OUT_DIR FILE...

Column names and types are given, as a careful user would. By default the rows pass from DuckDB to deltalake as one Arrow
table; with --stream as a stream of batches. Prints {"rows": N}. The caller measures time and memory of the whole process.
"""

import argparse
import json

import duckdb
from deltalake import write_deltalake

COLUMNS = {
    "event_id": "VARCHAR",
    "org_id": "VARCHAR",
    "occurred_at": "TIMESTAMPTZ",
    "type": "VARCHAR",
    "lead_id": "VARCHAR",
    "user_id": "VARCHAR",
    "cadence_id": "VARCHAR",
    "cadence_name": "VARCHAR",
    "subject": "VARCHAR",
    "url": "VARCHAR",
    "ip": "VARCHAR",
    "duration_ms": "BIGINT",
    "meta": "STRUCT(channel VARCHAR, score DOUBLE)",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--feed", action="store_true", help="with Delta's change data feed on")
    parser.add_argument("out")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET preserve_insertion_order = false")
    rows = connection.read_json(args.files, format="newline_delimited", columns=COLUMNS)
    data = rows.to_arrow_reader() if args.stream else rows.to_arrow_table()
    configuration = {"delta.enableChangeDataFeed": "true"} if args.feed else None
    write_deltalake(args.out, data, partition_by=["org_id"], configuration=configuration)

    from deltalake import DeltaTable

    print(json.dumps({"rows": DeltaTable(args.out).count()}))


if __name__ == "__main__":
    main()
