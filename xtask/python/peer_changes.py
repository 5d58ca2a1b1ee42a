"""The peer of `bench changes`: reads a table's whole change data feed with deltalake into memory.

usage: peer_changes.py TABLE_DIR

Prints {"rows": N, "elapsed_us": M}; the time is that of `load_cdf` and reading its batches alone.
"""

import json
import sys
import time

from deltalake import DeltaTable


def main():
    begin = time.perf_counter()
    rows = 0
    for batch in DeltaTable(sys.argv[1]).load_cdf(starting_version=0):
        rows += batch.num_rows
    elapsed = time.perf_counter() - begin
    print(json.dumps({"rows": rows, "elapsed_us": int(elapsed * 1e6)}))


if __name__ == "__main__":
    main()
