"""The peer of `bench mutate`: the same conversions by deltalake's MERGE, one commit.

usage: peer_mutate.py TABLE_DIR REQUESTS_FILE

The file holds requests as JSON lines: org_id, from and to of lead_id. Prints {"updated": N}.
"""

import json
import sys

import pyarrow.json
from deltalake import DeltaTable


def main():
    requests = pyarrow.json.read_json(sys.argv[2]).select(["org_id", "from", "to"])
    merge = DeltaTable(sys.argv[1]).merge(
        requests,
        predicate='t.org_id = s.org_id AND t.lead_id = s."from"',
        source_alias="s",
        target_alias="t",
    )
    metrics = merge.when_matched_update({"lead_id": 's."to"'}).execute()
    print(json.dumps({"updated": metrics["num_target_rows_updated"]}))


if __name__ == "__main__":
    main()
