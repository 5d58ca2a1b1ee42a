"""Makes sorted-file-v1.sorted and sorted-file-compressed-v1.sorted as docs/formats/sorted-file.md describes them.

Needs the packages xxhash and lz4.
"""

import pathlib
import struct

import lz4.block
import xxhash

SALTS = [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31]
BLOCK_BYTES = 16 * 1024
PART_BYTES = 1024


def xxh3(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


def filter_of(keys: list[bytes]) -> tuple[bytes, bytes]:
    """Groups and directory."""
    assert len(keys) <= 65536, "one piece is all that this script makes"
    if not keys:
        return b"", struct.pack(">I", 0)
    groups = -(-len(keys) * 12 // 256)
    words = [[0] * 8 for _ in range(groups)]
    for key in keys:
        hashed = xxh3(key)
        group = words[((hashed >> 32) * groups) >> 32]
        for i, salt in enumerate(SALTS):
            group[i] |= 1 << ((((hashed & 0xFFFFFFFF) * salt) & 0xFFFFFFFF) >> 27)
    stored = b"".join(struct.pack(">8I", *group) for group in words)
    parts = [xxh3(stored[at : at + PART_BYTES]) for at in range(0, len(stored), PART_BYTES)]
    return stored, struct.pack(">I", 1) + keys[0] + struct.pack(f">I{len(parts)}Q", groups, *parts)


def file_of(entries: list[tuple[bytes, bytes]], meta: str) -> bytes:
    blocks, block = [], b""
    for key, value in entries:
        block += key + struct.pack(">I", len(value)) + value
        if len(block) >= BLOCK_BYTES:
            blocks.append(block)
            block = b""
    if block:
        blocks.append(block)
    body, index = b"", b""
    for block in blocks:
        packed = lz4.block.compress(block, store_size=False)
        stored = packed if len(packed) < len(block) else block
        index += block[:24] + struct.pack(">IIQ", len(stored), len(block), xxh3(stored))
        body += stored
    keys = sorted({key for key, _ in entries})
    (groups, directory), note = filter_of(keys), meta.encode()
    sections = directory + index + note
    last = keys[-1] if keys else bytes(24)
    lengths = len(groups), len(directory), len(index), len(note)
    footer = struct.pack(">6Q", *lengths, len(entries), len(keys)) + last
    footer += struct.pack(">Q", xxh3(sections))
    return body + groups + sections + footer + struct.pack(">QI", xxh3(footer), 1) + b"ALVSORTD"


def key(org: int, node: int) -> bytes:
    return struct.pack(">Q", org) + xxhash.xxh3_128_digest(struct.pack(">Q", node))


here = pathlib.Path(__file__).parent
small = sorted((key(7, n), [b"first", b"", "dritter \N{LATIN SMALL LETTER U WITH DIAERESIS}".encode()][n]) for n in range(3))
small.insert(2, (small[1][0], b"another of that key"))
(here / "sorted-file-v1.sorted").write_bytes(file_of(small, '{"position":42}'))
large = sorted((key(n % 3, n), b"value of node %d" % n) for n in range(1000))
(here / "sorted-file-compressed-v1.sorted").write_bytes(file_of(large, ""))
