"""Makes file-index-v1.idx as docs/formats/file-index.md describes it. Needs the xxhash package."""

import pathlib
import struct

import xxhash


def xxh3(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


def section(field: str, ids: list[str]) -> bytes:
    hashes = {xxh3(field.encode() + b"\0" + i.encode()) >> 16 for i in ids}
    return b"".join(struct.pack(">Q", h)[2:] for h in sorted(hashes))


files = {
    0: {"lead_id": ["00Q1", "00Q2", "00Q1", "0031"], "user_id": ["-7", "42"]},
    3: {"lead_id": [], "user_id": ["9223372036854775807", "42"]},
}
fields = ["lead_id", "user_id"]
directory = struct.pack(">H", len(fields)) + b"".join(struct.pack(">H", len(f)) + f.encode() for f in fields)
directory += struct.pack(">I", len(files)) + b"".join(struct.pack(">I", seq) for seq in files)
body = b""
for field in fields:
    for ids in files.values():
        hashes = section(field, ids[field])
        directory += struct.pack(">IQ", len(hashes) // 6, xxh3(hashes))
        body += hashes
footer = struct.pack(">QQ", len(directory), xxh3(directory))
footer += struct.pack(">QI", xxh3(footer), 1) + b"ALVINDEX"
pathlib.Path(__file__).with_suffix(".idx").write_bytes(body + directory + footer)
