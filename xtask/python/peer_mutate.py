"""The peer of `bench mutate`: the same conversions by deltalake's MERGE, one commit.

usage: peer_mutate.py TABLE_DIR REQUESTS_FILE [feed]

The file holds requests as JSON lines: org_id, from and to of lead_id. With `feed` the table first gets a change data feed, which costs it a
commit of metadata. Prints {"updated": N}.
"""

import json
import sys

import pyarrow.json
from deltalake import DeltaTable


def main():
    requests = pyarrow.json.read_json(sys.argv[2]).select(["org_id", "from", "to"])
    table = DeltaTable(sys.argv[1])
    if sys.argv[3:] == ["feed"]:
        table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    merge = table.merge(
        requests,
        predicate='t.org_id = s.org_id AND t.lead_id = s."from"',
        source_alias="s",
        target_alias="t",
    )
    metrics = merge.when_matched_update({"lead_id": 's."to"'}).execute()
    print(json.dumps({"updated": metrics["num_target_rows_updated"]}))


if __name__ == "__main__":
    main()
