"""The peer of `bench changes`: reads a table's whole change data feed with deltalake, into memory or into an Arrow file on disk.

usage: peer_changes.py TABLE_DIR [FILE]

Prints {"rows": N, "elapsed_us": M, "cpu_us": C}; the times are those of `load_cdf`, reading its batches and writing them alone.
"""

import json
import os
import sys
import time

import pyarrow
from deltalake import DeltaTable


def main():
    begin, cpu = time.perf_counter(), time.process_time()
    rows = 0
    batches = DeltaTable(sys.argv[1]).load_cdf(starting_version=0)
    if len(sys.argv) > 2:
        reader = pyarrow.RecordBatchReader.from_stream(batches)
        with pyarrow.OSFile(sys.argv[2], "wb") as file, pyarrow.ipc.new_file(file, reader.schema) as out:
            for batch in reader:
                rows += batch.num_rows
                out.write_batch(batch)
        with open(sys.argv[2], "rb+") as file:
            os.fsync(file.fileno())
    else:
        for batch in batches:
            rows += batch.num_rows
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(json.dumps({"rows": rows, "elapsed_us": int(elapsed * 1e6), "cpu_us": int(cpu * 1e6)}))


if __name__ == "__main__":
    main()
