"""Makes token-v1.txt as docs/formats/consumer.md describes it. Needs the xxhash package."""

import pathlib
import struct

import xxhash


def digest32(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data) & 0xFFFFFFFF


binding = xxhash.xxh3_64_intdigest(b"0123456789abcdef0123456789abcdef/edit")
table = xxhash.xxh3_64_intdigest(b"5fba94ed-9794-4965-ba6e-6ee3c0d22af9")
body = bytes([1]) + b"r" + struct.pack(">QQIQQQ", 42, binding, digest32(b"reports"), 7, 0x0102030405060708, table)
token = body + struct.pack(">I", digest32(body))
pathlib.Path(__file__).with_suffix(".txt").write_text(token.hex() + "\n")
