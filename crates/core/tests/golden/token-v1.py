"""Makes token-v1.txt as docs/formats/consumer.md describes it. Needs the xxhash package."""

import pathlib
import struct

import xxhash


def digest32(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data) & 0xFFFFFFFF


binding = xxhash.xxh3_64_intdigest(b"0123456789abcdef0123456789abcdef/edit")
body = bytes([1]) + b"r" + struct.pack(">QQIQ", 42, binding, digest32(b"reports"), 7)
token = body + struct.pack(">I", digest32(body))
pathlib.Path(__file__).with_suffix(".txt").write_text(token.hex() + "\n")
