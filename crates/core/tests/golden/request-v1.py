"""Makes request-v1.digests from request-v1.jsonl by the words of docs/formats/request.md: python3 request-v1.py"""
import hashlib, pathlib

here = pathlib.Path(__file__).parent
lines = (here / "request-v1.jsonl").read_text("utf-8").splitlines()
digests = [hashlib.sha256(line.removeprefix('{"format":1,').removesuffix("}").encode()).hexdigest() for line in lines]
(here / "request-v1.digests").write_text("\n".join(digests) + "\n")
