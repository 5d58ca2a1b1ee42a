"""Makes pseudonym-v1.txt: the check value of a key, and two pseudonyms. Run from this directory."""

import hashlib
import hmac


def mac(key, *parts):
    message = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hmac.new(key, message, hashlib.sha256)


key, salt, org = bytes(range(32)), bytes(255 - at for at in range(16)), b"00D1"
derived = mac(key, b"alluvium organisation", org, salt).digest()
lines = [mac(key, b"alluvium check value").hexdigest()]
for field, text in [("lead_id", "00Q1"), ("ü", "")]:
    parts = [(1).to_bytes(4, "little"), org, field.encode(), b"text", text.encode()]
    lines.append("erased:1:" + mac(derived, *parts).hexdigest())
with open("pseudonym-v1.txt", "w") as golden:
    golden.write("\n".join(lines) + "\n")
