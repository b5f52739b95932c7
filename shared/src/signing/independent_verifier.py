"""Verifies signatures with nothing but Python's standard library.

One JSON case a line on standard input, one word a line on standard output: `ok`, or what is wrong.
Binary values are in hexadecimal.
"""

import base64
import hashlib
import hmac
import json
import sys


def unpadded(part):
    assert "=" not in part, "padding"
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def verify(case):
    body = bytes.fromhex(case["body"])
    headers = case["headers"]
    header, claims, tag = headers["upstash-signature"].split(".")
    expected = hmac.new(case["key"].encode(), f"{header}.{claims}".encode(), hashlib.sha256)
    assert hmac.compare_digest(unpadded(tag), expected.digest()), "jwt-tag"
    assert unpadded(header) == b'{"alg":"HS256","typ":"JWT"}', "jwt-header"
    claims = json.loads(unpadded(claims))
    assert list(claims) == ["iss", "sub", "exp", "nbf", "iat", "jti", "body"], "claims"
    assert claims["iss"] == "Upstash" and claims["nbf"] == 0, "issuer"
    assert claims["sub"].encode() == bytes.fromhex(case["destination"]), "destination"
    assert claims["iat"] == case["now_s"] and claims["exp"] == case["now_s"] + 300, "dates"
    digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    assert claims["body"] == digest, "jwt-body"

    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    tag = hmac.new(bytes.fromhex(case["secret"]), signed, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(tag).decode()
    assert hmac.compare_digest(headers["webhook-signature"], expected), "webhook"
    assert headers["webhook-timestamp"] == str(case["now_s"]), "webhook-timestamp"


for line in sys.stdin:
    try:
        verify(json.loads(line))
        print("ok")
    except AssertionError as error:
        print(error)
