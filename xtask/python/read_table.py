"""What other readers see in Delta tables: deltalake, DuckDB and Polars, compared.

usage: read_table.py [--rows] [--sql QUERY] TABLE...

A table is a directory or the URL of one in an object store, which is found by the environment.

Prints one JSON object a table: what they agreed on (`rows`, `columns` with null counts and, for integers, sums, and an
order-free `hash` of all rows), and what each reader saw. Exits with 1 when a reader failed or two differ, and says where
in `differences`.

The readers share less than it seems. `deltalake` reads with pyarrow what the log names. `duckdb` runs SQL over that.
`duckdb_parquet` takes only paths and partition values from the log and reads the Parquet files with DuckDB's own reader;
`polars` with Polars' own. Tables whose files are not plain Parquet rows (deletion vectors, column mapping) are left to
those readers that know the feature, and `duckdb_parquet` is not asked; nor is it of tables in object stores.

--rows    also print every row (`data`), as plain values: times as microseconds since 1970 UTC, dates as days, decimals
          as text, binary as hexadecimal, structs as [name, value] pairs, maps as key and value pairs
--sql Q   also run Q in DuckDB over the table, named `t`, and print the rows it gives (`sql`)
"""

import argparse
import hashlib
import json
import os
import sys
import warnings
from urllib.parse import unquote

import duckdb
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

warnings.filterwarnings("ignore")


# Values in one spelling, whoever read them.


def plain(array):
    """The values of an Arrow array as plain Python ones: no class, unit or time zone of any library in them."""
    kind = array.type
    types = pa.types
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in plain(chunk)]
    if types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz), safe=True).cast(pa.int64()).to_pylist()
    if types.is_date64(kind):
        return plain(array.cast(pa.date32()))
    if types.is_date32(kind):
        return array.cast(pa.int32()).to_pylist()
    if types.is_decimal(kind):
        return [None if value is None else format(value, "f") for value in array.to_pylist()]
    if types.is_floating(kind):
        return [None if value is None else repr(value) for value in array.to_pylist()]
    if types.is_string_view(kind):
        return array.cast(pa.large_string()).to_pylist()
    if types.is_binary_view(kind):
        return plain(array.cast(pa.large_binary()))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return [None if value is None else value.hex() for value in array.to_pylist()]
    if types.is_struct(kind):
        return plain_structs(array)
    if types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
        return plain_lists(array)
    return array.to_pylist()


def plain_structs(array):
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    children = [plain(array.field(i)) for i in range(array.type.num_fields)]
    order = sorted(range(len(names)), key=names.__getitem__)
    valid = array.is_valid().to_pylist()
    return [tuple((names[i], children[i][row]) for i in order) if valid[row] else None for row in range(len(array))]


def plain_lists(array):
    """Lists, and maps as the lists of key and value structs that some readers give them as."""
    offsets = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    if pa.types.is_map(array.type):
        items = [(("key", key), ("value", value)) for key, value in zip(plain(array.keys), plain(array.items))]
    else:
        items = plain(array.values)
    return [tuple(items[offsets[row] : offsets[row + 1]]) if valid[row] else None for row in range(len(array))]


def summary(table):
    """What a reader saw: rows, nulls and sums a column, and a hash that does not depend on the order of rows."""
    names = sorted(table.column_names)
    values = {name: plain(table.column(name)) for name in names}
    columns = {}
    for name in names:
        columns[name] = {"nulls": sum(value is None for value in values[name])}
        if pa.types.is_integer(table.schema.field(name).type):
            columns[name]["sum"] = sum(value for value in values[name] if value is not None)
    total = 0
    for row in zip(*(values[name] for name in names)):
        digest = hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        total = (total + int.from_bytes(digest, "big")) % (1 << 128)
    seen = {"rows": table.num_rows, "columns": columns, "hash": f"{total:032x}"}
    data = [dict(zip(names, row)) for row in zip(*(values[name] for name in names))]
    return seen, data


# The readers.


def connect():
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def to_arrow(result):
    """A DuckDB relation as an Arrow table."""
    return result.to_arrow_table()


def read_deltalake(delta, _):
    return delta.to_pyarrow_table()


def read_duckdb(delta, _):
    connection = connect()
    connection.register("t", delta.to_pyarrow_dataset())
    return to_arrow(connection.sql("SELECT * FROM t"))


def read_polars(delta, _):
    return pl.read_delta(delta).to_arrow()


def read_duckdb_parquet(delta, directory):
    """DuckDB's own Parquet reader over the live files, with the log's partition values put beside their rows."""
    connection = connect()
    schema = pa.schema(delta.schema())
    partitions = delta.metadata().partition_columns
    actions = pa.table(delta.get_add_actions(flatten=False))
    # The log spells paths as URIs, relative to the table.
    paths = [os.path.join(directory, unquote(path)) for path in actions.column("path").to_pylist()]
    if not paths:
        return pa.table({field.name: pa.array([], field.type) for field in schema})
    files = pa.table({"path": pa.array(paths, pa.string())})
    for index, name in enumerate(partitions):
        files = files.append_column(f"p{index}", actions.column("partition").combine_chunks().field(name))
    connection.register("files", files)
    globs = [glob_escaped(path) for path in paths]
    options = "filename = '_file', union_by_name = true, hive_partitioning = false"
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in globs)
    rows = connection.sql(f"SELECT * FROM read_parquet([{listed}], {options})")
    present = set(rows.columns)
    wanted = []
    for field in schema:
        name = quoted(field.name)
        if field.name in partitions:
            wanted.append(f"files.p{partitions.index(field.name)} AS {name}")
        elif field.name in present:
            wanted.append(f"rows.{name}")
        else:
            wanted.append(f"NULL AS {name}")
    found = to_arrow(connection.sql(f"SELECT {', '.join(wanted)} FROM rows JOIN files ON rows._file = files.path"))
    return found.cast(pa.schema([field.with_nullable(True) for field in schema]))


def glob_escaped(path):
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def is_plain(delta):
    """Whether the table's files hold its rows and nothing else says otherwise."""
    protocol = delta.protocol()
    features = set(protocol.reader_features or [])
    return protocol.min_reader_version < 2 or features <= {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}


def readers(delta):
    found = {"deltalake": read_deltalake, "duckdb": read_duckdb, "polars": read_polars}
    if is_plain(delta) and "://" not in delta.table_uri.removeprefix("file://"):
        found["duckdb_parquet"] = read_duckdb_parquet
    return found


# The comparison.


def differences(seen):
    """Where the readers differ from the first that could read, and who could not."""
    found = [f"{name} failed: {result['error']}" for name, result in seen.items() if "error" in result]
    able = {name: result for name, result in seen.items() if "error" not in result}
    if not able:
        return found
    first, reference = next(iter(able.items()))
    for name, result in able.items():
        if result["rows"] != reference["rows"]:
            found.append(f"rows: {first} {reference['rows']}, {name} {result['rows']}")
        for column in sorted(set(reference["columns"]) | set(result["columns"])):
            ours, theirs = reference["columns"].get(column), result["columns"].get(column)
            if ours != theirs:
                found.append(f"column {column}: {first} {ours}, {name} {theirs}")
        if result["hash"] != reference["hash"]:
            found.append(f"hash: {first} {reference['hash']}, {name} {result['hash']}")
    return found


def look(path, want_rows, sql):
    delta = DeltaTable(path)
    seen, data = {}, {}
    for name, read in readers(delta).items():
        try:
            seen[name], data[name] = summary(read(delta, path))
        except Exception as error:  # whatever a reader raises is what it saw
            seen[name] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    found = differences(seen)
    answer = {"table": path, "version": delta.version()}
    if not found:
        answer.update(next(iter(seen.values())))
    else:
        # The columns of rows that differ: where to look, never what was in them.
        answer["differences"] = found + differing_columns(data)
    answer["readers"] = seen
    if want_rows and data:
        answer["data"] = sorted(next(iter(data.values())), key=repr)
    if sql is not None:
        connection = connect()
        connection.register("t", delta.to_pyarrow_dataset())
        answer["sql"] = [list(row) for row in connection.sql(sql).fetchall()]
    return answer


def differing_columns(data):
    """Which columns' values differ between the readers, each taken as a bag of values."""
    found = []
    if len(data) < 2:
        return found
    first, reference = next(iter(data.items()))
    for name, rows in data.items():
        for column in reference[0] if reference else []:
            ours = sorted(repr(row[column]) for row in reference)
            theirs = sorted(repr(row.get(column)) for row in rows)
            if ours != theirs:
                found.append(f"values of {column} differ between {first} and {name}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="TABLE")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--sql")
    args = parser.parse_args()
    agreed = True
    for path in args.tables:
        try:
            answer = look(path, args.rows, args.sql)
        except Exception as error:
            answer = {"table": path, "differences": [f"no Delta table: {error}"]}
        agreed = agreed and "differences" not in answer
        print(json.dumps(answer, default=str))
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
