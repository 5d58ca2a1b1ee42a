"""Makes fate-v1.hex and node-keys-v1.txt by the words of docs/formats/fate.md: python3 fate-v1.py"""
import hashlib, pathlib

here = pathlib.Path(__file__).parent


def number(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def time(t):
    return number(2 * t if t >= 0 else -2 * t - 1)


def text(t):
    return number(len(t.encode())) + t.encode()


def columns(*all):
    return number(len(all)) + b"".join(text(c) + text(v) + time(t) + text(r) for c, v, t, r in all)


END = 2**63 - 1
fate = (
    number(4)
    + time(-1) + b"\x00"
    + time(1_000_000) + b"\x02" + columns(("ip", "null", 1_000_000, "r-clear"), ("note", '"ü"', 1_700_000_000_000_000, "r9"))
    + time(1_795_965_978_528_001) + b"\x03" + text("0031") + columns(("size", "2.50", 1_795_965_978_528_001, "r1"))
    + time(END) + b"\x01" + columns()
)
(here / "fate-v1.hex").write_text(fate.hex() + "\n")


def key(kind, org, field, id):
    parts = b"".join(len(p.encode()).to_bytes(8, "little") + p.encode() for p in (org, field, id))
    return hashlib.sha256(bytes([kind]) + parts).digest()[:16].hex()


keys = [key(0, "00D1", "", ""), key(1, "00D1", "", "e-1"), key(2, "00D1", "lead_id", "00Q1"), key(2, "ü", "user", "")]
(here / "node-keys-v1.txt").write_text("\n".join(keys) + "\n")
