"""The peer of `bench changes`: reads a table's whole change data feed with deltalake into memory.

usage: peer_changes.py TABLE_DIR

Prints {"rows": N, "elapsed_us": M, "cpu_us": C}; the times are those of `load_cdf` and reading its batches alone.
"""

import json
import sys
import time

from deltalake import DeltaTable


def main():
    begin, cpu = time.perf_counter(), time.process_time()
    rows = 0
    for batch in DeltaTable(sys.argv[1]).load_cdf(starting_version=0):
        rows += batch.num_rows
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(json.dumps({"rows": rows, "elapsed_us": int(elapsed * 1e6), "cpu_us": int(cpu * 1e6)}))


if __name__ == "__main__":
    main()
