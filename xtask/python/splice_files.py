"""Data files by other writers, and whether what the splice writer made of them is the naive rewrite.

usage: splice_files.py make DIR | splice_files.py check DIR

`make` writes files of one table into DIR, by pyarrow and by DuckDB, in every codec and page version that they write, and prints
their names, one a line. `check` reads each file of DIR and the one of the same name in DIR/out, with pyarrow and with DuckDB, and
compares the second with the first after the edits that the test makes, done here row by row. Prints what differs.

The edits: the row at i loses its place if i % 11 == 3, in files whose name holds "less"; its id becomes "new-i" and its _original
{"i":i} if i % 5 == 1; its n becomes -i if i % 7 == 2, or null if i % 14 == 2.
"""

import datetime
import decimal
import os
import pathlib
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 2500
UTC = datetime.timezone.utc


def table(**types):
    """The rows; `types` overrides Arrow types."""
    def every(step, make):
        return [None if i % step == 0 else make(i) for i in range(ROWS)]

    days = datetime.date(2024, 1, 1)
    times = datetime.datetime(2024, 1, 1, tzinfo=UTC)
    columns = {
        "id": (every(13, lambda i: f"id-{i % 97}"), pa.string()),
        "n": (every(17, lambda i: i * 31 % 1009), pa.int64()),
        "x": (every(19, lambda i: i / 7), pa.float64()),
        "flag": (every(23, lambda i: i % 3 == 0), pa.bool_()),
        "day": (every(29, lambda i: days + datetime.timedelta(days=i)), pa.date32()),
        "at": (every(31, lambda i: times + datetime.timedelta(milliseconds=i * 977)), pa.timestamp("us", "UTC")),
        "price": (every(37, lambda i: decimal.Decimal(i * 7) / 100), pa.decimal128(10, 2)),
        "raw": (every(41, lambda i: bytes([i % 256, 0, 255])), pa.binary()),
        "tags": (every(43, lambda i: [None if t == 2 else f"t{t}" for t in range(i % 4)]), pa.list_(pa.string())),
        "place": (every(47, lambda i: {"city": f"c{i % 5}", "zip": None if i % 3 == 0 else i}), None),
        "counts": (every(53, lambda i: [(f"k{k}", k * i) for k in range(i % 3)]), pa.map_(pa.string(), pa.int64())),
    }
    columns["place"] = (columns["place"][0], pa.struct([("city", pa.string()), ("zip", pa.int64())]))
    return pa.table({name: pa.array(values, types.get(name, kind)) for name, (values, kind) in columns.items()})


def make(directory):
    names = []

    def written(name, rows, **options):
        path = directory / f"{name}.parquet"
        pq.write_table(rows, path, **({"row_group_size": 700, "data_page_size": 4096} | options))
        names.append(path.name)

    rows = table()
    for codec in ["none", "snappy", "gzip", "brotli", "lz4", "zstd"]:
        for version in ["1.0", "2.0"]:
            written(f"pyarrow-{codec}-{version}-less", rows, compression=codec, data_page_version=version)
    written("pyarrow-plain", rows, use_dictionary=False)
    written("pyarrow-plain-less", rows, use_dictionary=False, write_statistics=False)
    written("pyarrow-small-dictionary", rows, dictionary_pagesize_limit=200, write_page_index=True)
    written("pyarrow-old-less", rows, version="1.0", store_schema=False)
    written("pyarrow-no-schema", rows, store_schema=False)
    written("pyarrow-page-index-less", rows, write_page_index=True, write_page_checksum=True)
    written("pyarrow-96-bits", rows, use_deprecated_int96_timestamps=True)
    written("pyarrow-96-bits-less", rows, use_deprecated_int96_timestamps=True)
    written("pyarrow-nested-old-less", rows, use_compliant_nested_type=False)
    written("pyarrow-decimal-less", rows, store_decimal_as_integer=True)
    encodings = {"id": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED", "x": "BYTE_STREAM_SPLIT", "raw": "DELTA_LENGTH_BYTE_ARRAY"}
    written("pyarrow-delta-less", rows, use_dictionary=False, column_encoding=encodings)
    other = table(id=pa.large_string(), n=pa.int32(), at=pa.timestamp("ms", "UTC"), raw=pa.large_binary(), x=pa.float64())
    written("pyarrow-other-types", other)
    written("pyarrow-other-types-less", other)
    written("pyarrow-dictionary-type-less", rows.set_column(0, "id", rows["id"].dictionary_encode()))
    written("pyarrow-many-groups-less", rows, row_group_size=10)
    written("pyarrow-sorted", rows.sort_by("n"), sorting_columns=[pq.SortingColumn(1)], bloom_filter_options={"id": True})
    for codec in ["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw"]:
        for version in ["v1", "v2"]:
            name = f"duckdb-{codec}-{version}-less.parquet"
            duckdb.register("rows", rows)
            duckdb.execute(
                f"COPY (SELECT * FROM rows) TO '{directory / name}' (FORMAT parquet, COMPRESSION {codec}, "
                f"PARQUET_VERSION {version}, ROW_GROUP_SIZE 2048)"
            )
            names.append(name)
    print("\n".join(names))


def edited(names, rows, less):
    """What rows, each a tuple of the columns `names`, become."""
    names = list(names)
    added = [] if "_original" in names else ["_original"]
    made = []
    for i, row in enumerate(rows):
        if less and i % 11 == 3:
            continue
        row = dict(zip(names + added, list(row) + [None] * len(added)))
        if i % 5 == 1:
            row |= {"id": f"new-{i}", "_original": f'{{"i":{i}}}'}
        if i % 7 == 2:
            row["n"] = None if i % 14 == 2 else -i
        made.append(row)
    return names + added, made


def instants(rows):
    """Rows with their times in UTC: timestamps of 96 bits are read without a zone, but mean that."""
    for row in rows:
        at = row["at"]
        yield row | {"at": at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at}


def differences(source, out):
    less = "less" in source.name
    before, after = pq.read_table(source), pq.read_table(out)
    _, expected = edited(before.column_names, zip(*[before[c].to_pylist() for c in before.column_names]), less)
    if list(instants(after.to_pylist())) != list(instants(expected)):
        yield "pyarrow reads other rows"
    for column in before.schema:
        # What is encoded whole has the table's types; otherwise types stay.
        if "96-bits-less" not in source.name and after.schema.field(column.name).type != column.type:
            yield f"pyarrow reads {column.name} as {after.schema.field(column.name).type}, not {column.type}"

    def all_of(path):
        # Whether DuckDB reads rows in parallel or not, they come in their order.
        cursor = duckdb.sql(f"SELECT * FROM read_parquet('{path}')")
        return cursor.columns, cursor.fetchall()

    duckdb.sql("SET TimeZone = 'UTC'")
    names, expected = edited(*all_of(source), less)
    found_names, found = all_of(out)
    if sorted(found_names) != sorted(names) or list(instants(dict(zip(found_names, row)) for row in found)) != list(instants(expected)):
        yield "DuckDB reads other rows"
    ids = sum(1 for row in expected if row["id"] == "new-21")
    if duckdb.sql(f"SELECT count(*) FROM read_parquet('{out}') WHERE id = 'new-21'").fetchall() != [(ids,)]:
        yield "DuckDB does not find a new id"


def check(directory):
    files = sorted(directory.glob("*.parquet"))
    wrong = 0
    for source in files:
        for difference in differences(source, directory / "out" / source.name):
            print(f"{source.name}: {difference}")
            wrong += 1
    print(f"{len(files)} files, {wrong} differences")


def main():
    {"make": make, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
    sys.stdout.flush()
    # Threads of the libraries now and then bring a process down while it ends.
    os._exit(0)


if __name__ == "__main__":
    main()
