"""Makes the golden tokens beside it as docs/formats/consumer.md describes them. Needs the xxhash package."""

import pathlib
import struct

import xxhash


def digest32(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data) & 0xFFFFFFFF


def write(version: int, went_on: bytes) -> None:
    binding = xxhash.xxh3_64_intdigest(b"0123456789abcdef0123456789abcdef/edit")
    table = xxhash.xxh3_64_intdigest(b"5fba94ed-9794-4965-ba6e-6ee3c0d22af9")
    reader = struct.pack(">QQIQQ", 42, binding, digest32(b"reports"), 7, 0x0102030405060708)
    body = bytes([version]) + b"r" + reader + went_on + struct.pack(">Q", table)
    token = body + struct.pack(">I", digest32(body))
    (pathlib.Path(__file__).parent / f"token-v{version}.txt").write_text(token.hex() + "\n")


write(1, b"")
write(2, struct.pack(">QQ", 0x1112131415161718, 40))
