"""Makes taken-segment-v1.taken as docs/formats/taken-files.md describes it. Needs the xxhash package."""

import pathlib
import struct

import xxhash

names = {
    "2026/01/02/a.json.gz": 1,
    "a b.json": 0x0102030405060708,
    "ünïcode/100%.csv": 2**64 - 1,
    "x#1.json": 0,
    "": 42,
}
entries = sorted(xxhash.xxh3_128_digest(name.encode()) + struct.pack(">Q", stamp) for name, stamp in names.items())
content = b"ALVTAKEN" + struct.pack(">IQQQ", 1, 16, 48, len(entries)) + b"".join(entries)
path = pathlib.Path(__file__).with_suffix(".taken")
path.write_bytes(content + struct.pack(">Q", xxhash.xxh3_64_intdigest(content)))
