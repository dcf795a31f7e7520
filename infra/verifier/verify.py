#!/usr/bin/env python3
"""Checks an export of a Belay log, offline, with nothing of Belay installed.

    python3 verify.py EXPORT.zip --key 'ORIGIN+ID+KEY'
    python3 verify.py EXPORT.zip --root ROOT.pem --origin ORIGIN

Needs Python 3.9 or later, its standard library, and the `openssl` command (3.0 or later). One file: copy it anywhere.
KEY and ROOT.pem are yours: had from whoever keeps the log by another way than the export itself. Without either, every
check is made all the same, and the answer is INDETERMINATE, since anyone can make a log of their own.

It is a second implementation. It shares no code with the service and is written from the pages that say what the bytes
mean: libs/envelope/FORMAT.md, libs/note/FORMAT.md, libs/coverage/FORMAT.md, libs/receipt/FORMAT.md, libs/export/FORMAT.md.
Section numbers in the comments below are theirs.

Prints each check by name with ok, failed or undecided, then VALID, INVALID or INDETERMINATE.
Exit code: 0 valid, 1 invalid, 2 indeterminate, 64 wrong usage, 65 a file or a key that is none.
"""

import argparse
from array import array
import base64
import bisect
import binascii
import functools
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time as clock
import zlib

MAX_INT = 2**53 - 1
# The deepest that a line of 4,096 bytes can nest has to be refused for what it says, not for how deep it is.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10000))


class Malformed(Exception):
    """Something is not what its page says. The text is for people."""


# ---------------------------------------------------------------------------------------------------------------------
# JSON (envelope, conventions). Strict in, one form out.


def _pairs(pairs):
    made = {}
    for key, value in pairs:
        if key in made:
            raise Malformed("a key stands twice in one object")
        made[key] = value
    return made


def _integer(text):
    if text == "-0" or len(text) > 17:
        raise Malformed("a number is not a plain integer up to 2^53 - 1")
    value = int(text)
    if not -MAX_INT <= value <= MAX_INT:
        raise Malformed("a number is not a plain integer up to 2^53 - 1")
    return value


def _refuse(text):
    raise Malformed("a number is not a plain integer: %s" % text[:40])


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_refuse, parse_constant=_refuse, strict=True
)


def strict_json(data, what="a line"):
    """JSON without byte order mark, CR, double keys, fractions; nesting is bounded by the interpreter's own limit."""
    if data[:3] == b"\xef\xbb\xbf":
        raise Malformed("%s begins with a byte order mark" % what)
    if b"\r" in data:
        raise Malformed("%s has a CR" % what)
    try:
        return _DECODER.decode(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise Malformed("%s is not UTF-8" % what) from None
    except RecursionError:
        raise Malformed("%s is nested too deep" % what) from None
    except ValueError as error:
        raise Malformed("%s is not JSON: %s" % (what, str(error)[:80])) from None


_string = json.encoder.encode_basestring  # the escapes of RFC 8785: short ones, else \u00xx in lower case


def _utf16(key):
    return key.encode("utf-16-be", "surrogatepass")


def _canon(value, out):
    if value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif value is None:
        out.append("null")
    elif isinstance(value, str):
        out.append(_string(value))
    elif isinstance(value, int):
        if not -MAX_INT <= value <= MAX_INT:
            raise Malformed("a number beyond 2^53 - 1")
        out.append(str(value))
    elif isinstance(value, dict):
        out.append("{")
        first = True
        keys = value.keys()
        for key in sorted(keys) if all(map(str.isascii, keys)) else sorted(keys, key=_utf16):
            if not first:
                out.append(",")
            first = False
            out.append(_string(key))
            out.append(":")
            _canon(value[key], out)
        out.append("}")
    elif isinstance(value, (list, tuple)):
        out.append("[")
        for i, item in enumerate(value):
            if i:
                out.append(",")
            _canon(item, out)
        out.append("]")
    else:
        raise Malformed("a value that JSON does not have")


def jcs(value):
    """RFC 8785 of what our formats hold: objects, arrays, strings, integers, true, false, null."""
    out = []
    try:
        _canon(value, out)
        return "".join(out).encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed("text with half a surrogate pair") from None
    except RecursionError:
        raise Malformed("nested too deep") from None


def canonical_json(data, what):
    """JSON that has to be in its one form."""
    value = strict_json(data, what)
    if jcs(value) != data:
        raise Malformed("%s is not canonical JSON (RFC 8785)" % what)
    return value


def b64(text, what, size=None):
    """Standard base64 in its one encoding."""
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (AttributeError, UnicodeEncodeError, binascii.Error, ValueError):
        raise Malformed("%s is not base64" % what) from None
    if base64.b64encode(raw).decode() != text or (size is not None and len(raw) != size):
        raise Malformed("%s is not canonical base64%s" % (what, "" if size is None else " of %d bytes" % size))
    return raw


def to64(raw):
    return base64.b64encode(raw).decode()


def sha256(data):
    return hashlib.sha256(data).digest()


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# Times, in milliseconds since 1970


def _days(year, month, day):
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


_TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?Z")
_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@functools.lru_cache(maxsize=4096)
def _parts(text):
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    most = 28 if month == 2 and not leap else _MONTHS[month - 1] if 1 <= month <= 12 else 0
    if not (1 <= day <= most and hour < 24 and minute < 60 and second < 60):
        return None
    return ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second, found.group(7)


def millis(text):
    """Of a time with exactly three fractional digits; None of anything else."""
    parts = _parts(text)
    if parts is None or parts[1] is None or len(parts[1]) != 3:
        return None
    return parts[0] * 1000 + int(parts[1])


# ---------------------------------------------------------------------------------------------------------------------
# RFC 6962


def leaf_hash(data):
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


EMPTY_ROOT = sha256(b"")


def decompose(begin, end):
    """Maximal aligned perfect subtrees of [begin, end), left to right: (first leaf, level)."""
    nodes = []
    while begin < end:
        level = (begin & -begin).bit_length() - 1 if begin else (end - begin).bit_length() - 1
        while begin + (1 << level) > end:
            level -= 1
        nodes.append((begin, level))
        begin += 1 << level
    return nodes


def push(stack, start, level, digest):
    """Appends a subtree to a stack of adjacent ones and joins what makes a larger one."""
    while stack and stack[-1][1] == level and (start >> level) & 1:
        start, _, left = stack.pop()
        digest = node_hash(left, digest)
        level += 1
    stack.append((start, level, digest))


def fold(stack):
    """Root of a stack that begins at leaf 0."""
    if not stack:
        return EMPTY_ROOT
    root = stack[-1][2]
    for _, _, left in reversed(stack[:-1]):
        root = node_hash(left, root)
    return root


# ---------------------------------------------------------------------------------------------------------------------
# Ed25519 (RFC 8032), verification only, without the cofactor, as openssl does it. A log has one key and thousands of
# signatures, so tables of both points are made once; a process of openssl for each would take minutes.

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT_OF_MINUS_1 = pow(2, (_P - 1) // 4, _P)


def _add(a, b):
    x1, y1, z1, t1 = a
    x2, y2, z2, t2 = b
    p = (y1 - x1) * (y2 - x2) % _P
    q = (y1 + x1) * (y2 + x2) % _P
    r = 2 * t1 * t2 % _P * _D % _P
    s = 2 * z1 * z2 % _P
    e, f, g, h = q - p, s - r, s + r, q + p
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _decode_point(data):
    y = int.from_bytes(data, "little")
    sign = y >> 255
    y &= (1 << 255) - 1
    if y >= _P:
        return None
    u, v = (y * y - 1) % _P, (_D * y * y + 1) % _P
    x = u * pow(v, 3, _P) * pow(u * pow(v, 7, _P), (_P - 5) // 8, _P) % _P
    if v * x * x % _P != u:
        x = x * _ROOT_OF_MINUS_1 % _P
        if v * x * x % _P != u:
            return None
    if x == 0 and sign:
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _table(point):
    """16 multiples of the point for each of 64 digits of four bits."""
    table = []
    for _ in range(64):
        row = [(0, 1, 1, 0)]
        for _ in range(15):
            row.append(_add(row[-1], point))
        table.append(row)
        point = _add(row[15], point)
    return table


class Ed25519:
    _base = None

    def __init__(self, key):
        self.key = key
        point = _decode_point(key)
        if point is None:
            raise Malformed("the key is no point of the curve")
        x, y, z, t = point
        self._minus = _table((_P - x if x else 0, y, z, _P - t if t else 0))
        if Ed25519._base is None:
            Ed25519._base = _table(_decode_point(bytes([0x58]) + b"\x66" * 31))

    def verify(self, message, signature):
        if len(signature) != 64:
            return False
        s = int.from_bytes(signature[32:], "little")
        if s >= _L:
            return False
        h = int.from_bytes(hashlib.sha512(signature[:32] + self.key + message).digest(), "little") % _L
        total = (0, 1, 1, 0)
        for i in range(64):
            digit = (s >> (4 * i)) & 15
            if digit:
                total = _add(total, Ed25519._base[i][digit])
            digit = (h >> (4 * i)) & 15
            if digit:
                total = _add(total, self._minus[i][digit])
        x, y, z, _ = total
        inverse = pow(z, _P - 2, _P)
        x, y = x * inverse % _P, y * inverse % _P
        return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]


# ---------------------------------------------------------------------------------------------------------------------
# Envelope and entry (envelope, sections 1, 2 and 6)

_ORIGIN = re.compile(r"[A-Za-z0-9._/:-]{1,255}")
_SINK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_KIND_X = re.compile(r"x\.[a-z][a-z0-9_.-]{0,40}")
_ATTR_X = re.compile(r"[a-z][a-z0-9_]{0,31}")
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_CALL = re.compile(r"(?:weak:)?hmac-sha256:[0-9a-f]{64}")
_MATCH = re.compile(r"hmac-sha256:[0-9a-f]{64}")
_DIGEST = re.compile(r"(?:hmac-)?sha256:[0-9a-f]{64}")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._@/:+-]{1,128}")
_HASH = re.compile(r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=")
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_TOKEN = re.compile(r"tok_[0-9a-hjkmnp-tv-z]{26}")
_ADMIN = re.compile(r"adm_[0-9a-hjkmnp-tv-z]{26}")
_AUDITOR = re.compile(r"aud_[0-9a-hjkmnp-tv-z]{26}")
_PROJECT = re.compile(r"prj_[0-9a-hjkmnp-tv-z]{26}")
_VKEY = re.compile(r"[^\s+]{1,300}\+[0-9a-f]{8}\+[A-Za-z0-9+/]+={0,2}")


def text_of(pattern):
    match = pattern.fullmatch
    return lambda value: isinstance(value, str) and match(value) is not None


def one_of(*words):
    return lambda value: isinstance(value, str) and value in words


def whole(least=0, most=MAX_INT):
    return lambda value: type(value) is int and least <= value <= most


def is_bool(value):
    return value is True or value is False


def list_of(rule, least, most):
    return lambda value: isinstance(value, list) and least <= len(value) <= most and all(map(rule, value))


_int = whole()
_name = text_of(_NAME)
_digest = text_of(_DIGEST)
_sha256 = text_of(_SHA256)
_hash = text_of(_HASH)
_ulid = text_of(_ULID)
_sink = text_of(_SINK)
_origin = text_of(_ORIGIN)
_session = text_of(_SESSION)
_call = text_of(_CALL)


def _is_time(value):
    return isinstance(value, str) and _parts(value) is not None


def is_moment(value):
    return isinstance(value, str) and millis(value) is not None


SINK_KINDS = ("proxy", "hook", "otlp", "forward", "verifier", "other")
_sink_kind = one_of(*SINK_KINDS)
_STATED = {"size": _int, "root": _hash, "dropped": _int, "filtered": _int}
_STATED_NEEDS = ("size", "root", "dropped", "filtered")

_ATTRS = {
    "epoch.open": (
        {"counter": _int, "prev_epoch": _ulid, "prev_size": _int, "prev_root": _hash, "key": _hash, "sink_kind": _sink_kind},
        (),
    ),
    "session.open": (
        {
            "agent": _name,
            "server": _name,
            "policy": _digest,
            "sandbox": one_of("bwrap", "landlock", "seatbelt", "none"),
            "network": one_of("deny", "loopback", "ports", "allow"),
        },
        (),
    ),
    "call": ({"tool": _name, "bytes": _int, "oversize": is_bool, "batch": is_bool, "tooldef": _digest}, ()),
    "result": (
        {
            "tool": _name,
            "bytes": _int,
            "ok": is_bool,
            "error": _int,
            "error_negative": is_bool,
            "ms": _int,
            "oversize": is_bool,
            "late": is_bool,
        },
        (),
    ),
    "denial": ({"op": _name, "errno": _name, "class": _name, "count": _int}, ()),
    "state": (
        {
            "state": _digest,
            "phase": one_of("open", "pre", "post", "close"),
            "files": _int,
            "changed": _int,
            "unrestorable": is_bool,
            "drift": is_bool,
        },
        (),
    ),
    "verdict": (
        {
            "status": one_of("PASS", "WARN", "FAIL", "UNVERIFIED"),
            "cause": _name,
            "mode": one_of("session", "isolated", "group", "none"),
            "policy": _digest,
            "pre": _digest,
            "pre_index": _int,
            "pre_leaf": _hash,
            "call_index": _int,
            "call_leaf": _hash,
            "result_index": _int,
            "result_leaf": _hash,
            "replays": _int,
        },
        (),
    ),
    "claim": ({"bytes": _int}, ()),
    "gap": (
        {
            "first": whole(1),
            "last": whole(1),
            "reason": one_of("overflow", "filtered", "lost", "crash"),
            "hashes": list_of(_hash, 0, 64),
        },
        ("first", "last", "reason"),
    ),
    "heartbeat": (_STATED, _STATED_NEEDS),
    "session.close": (dict(_STATED, calls=_int, exit=_int, signal=_name), _STATED_NEEDS),
    "epoch.close": (_STATED, _STATED_NEEDS),
}


def _extension(value):
    return _int(value) or is_bool(value) or _name(value)


def members(value, required, optional, what):
    """Checks a closed object against tables of rules."""
    if not isinstance(value, dict):
        raise Malformed("%s is not an object" % what)
    for key in required:
        if key not in value:
            raise Malformed("%s has no %s" % (what, key))
    for key, member in value.items():
        rule = required.get(key) or optional.get(key)
        if rule is None:
            raise Malformed("%s has an unknown member %s" % (what, key[:40]))
        if not rule(member):
            raise Malformed("%s: %s is not what it may be" % (what, key[:40]))
    return value


_ENVELOPE = {
    "v": lambda value: value == 1 and type(value) is int,
    "log": _origin,
    "sink": _sink,
    "epoch": _ulid,
    "seq": whole(1, 2**53 - 2),
    "kind": lambda value: isinstance(value, str),
    "time": _is_time,
}
_ENVELOPE_MORE = {
    "digest": _digest,
    "session": _session,
    "call": _call,
    "match": text_of(_MATCH),
    "attrs": lambda value: isinstance(value, dict) and len(value) <= 16,
}


def parse_envelope(body):
    if len(body) > 4096:
        raise Malformed("an envelope of more than 4,096 bytes")
    value = members(strict_json(body), _ENVELOPE, _ENVELOPE_MORE, "an envelope")
    kind = value["kind"]
    table = _ATTRS.get(kind)
    attrs = value.get("attrs", {})
    if table is None:
        if _KIND_X.fullmatch(kind) is None:
            raise Malformed("an envelope of an unknown kind")
        for key, member in attrs.items():
            if _ATTR_X.fullmatch(key) is None or not _extension(member):
                raise Malformed("an attribute is not what it may be")
        return value
    rules, needs = table
    for key, member in attrs.items():
        rule = rules.get(key)
        if rule is None or not rule(member):
            raise Malformed("attribute %s of %s is not what it may be" % (key[:40], kind))
    for key in needs:
        if key not in attrs:
            raise Malformed("%s without %s" % (kind, key))
    if kind == "gap" and attrs["last"] < attrs["first"]:
        raise Malformed("a gap that ends before it begins")
    return value


_LINE = {
    "index": _int,
    "log": _origin,
    "received": is_moment,
    "role": one_of("agent", "sink", "verifier", "collector"),
    "v": lambda value: value == 1 and type(value) is int,
}
_LINE_MORE = {
    "conflict": _int,
    "late": lambda value: value is True,
    "signed": text_of(_FINGERPRINT),
    "sink": _sink,
    "token": text_of(_TOKEN),
}


def _is_name200(value):
    return isinstance(value, str) and 1 <= len(_utf16(value)) // 2 <= 200


def _is_policy(value):
    return isinstance(value, dict) or _sha256(value)


def _is_scope(value):
    if not isinstance(value, dict):
        return False
    rules = {
        "event": {"index": _int},
        "range": {"first": _int, "count": whole(1)},
        "session": {"session": _session},
        "period": {"from": is_moment, "to": is_moment},
    }.get(value.get("type") if isinstance(value.get("type"), str) else "")
    if rules is None or set(value) != set(rules) | {"type"} or not all(rules[key](value[key]) for key in rules):
        return False
    return value["type"] != "period" or value["from"] < value["to"]


_by = text_of(_ADMIN)
_BODIES = {
    "log.genesis": (
        {
            "log": _origin,
            "vkey": text_of(_VKEY),
            "ackKey": text_of(_VKEY),
            "project": text_of(_PROJECT),
            "name": _is_name200,
            "x5c": list_of(_sha256, 0, 8),
            "policy": _is_policy,
        },
        {},
    ),
    "token.issued": (
        {"token": text_of(_TOKEN), "role": one_of("agent", "sink", "verifier"), "by": _by},
        {"sinks": list_of(_sink, 1, 64), "expires": _is_time, "domain": _name},
    ),
    "token.revoked": ({"token": text_of(_TOKEN), "by": _by}, {}),
    "auditor.issued": ({"auditor": text_of(_AUDITOR), "by": _by}, {}),
    "auditor.revoked": ({"auditor": text_of(_AUDITOR), "by": _by}, {}),
    "sink.declared": (
        {"sink": _sink, "by": _by},
        {
            "sinkKind": _sink_kind,
            "required": is_bool,
            "domain": _name,
            "key": _hash,
            "fingerprint": text_of(_FINGERPRINT),
            "heartbeat": whole(1, 86400),
        },
    ),
    "policy.set": ({"policy": _is_policy, "by": _by}, {}),
    "receipt.issued": ({"receipt": _sha256, "scope": _is_scope, "asOf": _int}, {"supersedes": _sha256}),
    "label.set": (
        {"session": _session, "says": one_of("violated", "not_violated"), "by": text_of(_AUDITOR)},
        {"call": _call},
    ),
    "coverage.stated": (
        {
            "type": one_of("session", "epoch"),
            "statement": _sha256,
            "size": _int,
            "time": is_moment,
            "status": one_of("conflict", "gap", "unclosed", "silent", "open", "complete"),
            "policy": _sha256,
        },
        {"session": _session, "sink": _sink, "epoch": _ulid},
    ),
}


class Entry:
    """One entry of the log. `said` is the envelope, or the statement of an entry that the collector wrote."""

    __slots__ = ("index", "received", "at", "role", "token", "sink", "signed", "conflict", "late", "said", "kind", "leaf", "body")

    @property
    def sent(self):
        return self.role != "collector"

    @property
    def attrs(self):
        return self.said.get("attrs", {})


def parse_entry(line, body, log=None):
    """Reads the two lines of an entry, strictly."""
    if len(line) > 1024:
        raise Malformed("a collector's line of more than 1,024 bytes")
    head = members(canonical_json(line, "a collector's line"), _LINE, _LINE_MORE, "a collector's line")
    if log is not None and head["log"] != log:
        raise Malformed("an entry of another log")
    entry = Entry()
    entry.index = head["index"]
    entry.received = head["received"]
    entry.at = millis(entry.received)
    entry.role = head["role"]
    entry.token = head.get("token")
    entry.sink = head.get("sink")
    entry.signed = head.get("signed")
    entry.conflict = head.get("conflict")
    entry.late = head.get("late", False)
    entry.body = body
    entry.leaf = leaf_hash(line + b"\n" + body)
    if entry.role == "collector":
        if "sink" in head or "token" in head:
            raise Malformed("a collector's entry with a sink or a token")
        if len(body) > 4096:
            raise Malformed("a collector's statement of more than 4,096 bytes")
        said = canonical_json(body, "a collector's statement")
        table = _BODIES.get(said.get("kind")) if isinstance(said, dict) and isinstance(said.get("kind"), str) else None
        if table is None:
            raise Malformed("a collector's statement of an unknown kind")
        if said.get("v") != 1 or type(said["v"]) is not int:
            raise Malformed("a collector's statement of another version")
        rest = {key: value for key, value in said.items() if key not in ("kind", "v")}
        members(rest, table[0], table[1], said["kind"])
        if said["kind"] == "log.genesis" and said["log"] != head["log"]:
            raise Malformed("a genesis entry of another log")
        if said["kind"] == "coverage.stated":
            whom = {"session": {"session"}, "epoch": {"sink", "epoch"}}[said["type"]]
            if whom != {"session", "sink", "epoch"} & set(said):
                raise Malformed("coverage.stated does not say of what")
        if said["kind"] == "receipt.issued" and "supersedes" in said and said["scope"]["type"] in ("event", "range"):
            raise Malformed("a receipt for entries supersedes none")
    else:
        if entry.sink is None or entry.token is None:
            raise Malformed("a sender's entry without sink or token")
        said = parse_envelope(body)
        if said["log"] != head["log"] or said["sink"] != entry.sink:
            raise Malformed("the two lines of an entry are of different logs or sinks")
    entry.said = said
    entry.kind = said["kind"]
    return entry


def known_entry(line, body):
    """An entry that `parse_entry` has read before."""
    head, said = json.loads(line), json.loads(body)
    entry = Entry()
    entry.index, entry.received, entry.role = head["index"], head["received"], head["role"]
    entry.at = millis(entry.received)
    entry.token, entry.sink, entry.signed = head.get("token"), head.get("sink"), head.get("signed")
    entry.conflict, entry.late = head.get("conflict"), head.get("late", False)
    entry.body = body
    entry.leaf = leaf_hash(line + b"\n" + body)
    entry.said, entry.kind = said, said["kind"]
    return entry


# ---------------------------------------------------------------------------------------------------------------------
# Spans of numbers


class Spans:
    """A set of numbers, as half open spans in order."""

    def __init__(self):
        self.starts, self.ends = [], []

    def __bool__(self):
        return bool(self.starts)

    def __contains__(self, n):
        i = bisect.bisect_right(self.starts, n) - 1
        return i >= 0 and n < self.ends[i]

    def meets(self, begin, end):
        i = bisect.bisect_left(self.ends, begin + 1)
        return i < len(self.starts) and self.starts[i] < end

    def covers(self, begin, end):
        i = bisect.bisect_right(self.starts, begin) - 1
        return i >= 0 and end <= self.ends[i]

    def add(self, begin, end):
        starts, ends = self.starts, self.ends
        if ends and ends[-1] == begin:
            ends[-1] = end
            return
        lo = bisect.bisect_left(ends, begin)
        hi = bisect.bisect_right(starts, end)
        if lo < hi:
            begin, end = min(begin, starts[lo]), max(end, ends[hi - 1])
        starts[lo:hi], ends[lo:hi] = [begin], [end]

    def remove(self, begin, end):
        starts, ends = self.starts, self.ends
        lo = bisect.bisect_right(ends, begin)
        hi = bisect.bisect_left(starts, end)
        if lo >= hi:
            return
        left = [(starts[lo], begin)] if starts[lo] < begin else []
        right = [(end, ends[hi - 1])] if end < ends[hi - 1] else []
        kept = left + right
        starts[lo:hi], ends[lo:hi] = [a for a, _ in kept], [b for _, b in kept]

    def within(self, begin, end):
        """Parts of this set in [begin, end)."""
        for i in range(bisect.bisect_left(self.ends, begin + 1), len(self.starts)):
            if self.starts[i] >= end:
                return
            yield max(begin, self.starts[i]), min(end, self.ends[i])

    def holes(self, begin, end):
        for a, b in self.within(begin, end):
            if begin < a:
                yield begin, a
            begin = b
        if begin < end:
            yield begin, end

    def listed(self):
        return [{"from": a, "to": b} for a, b in zip(self.starts, self.ends)]


# ---------------------------------------------------------------------------------------------------------------------
# Coverage of an epoch (coverage, sections 1-3)

MAX_WAITING = 1000
MAX_CONFLICTS = 100


class Subtrees:
    """Known perfect subtrees, joined where both halves are known, but not across a size whose root is wanted."""

    def __init__(self):
        self.nodes = {}  # first leaf -> (level, hash)
        self.bounds = []  # wanted sizes, in order, with repetition

    def _held(self, begin, end):
        i = bisect.bisect_right(self.bounds, begin)
        return i < len(self.bounds) and self.bounds[i] < end

    def put(self, start, level, digest):
        nodes = self.nodes
        while True:
            sibling = nodes.get(start ^ (1 << level))
            parent = start & ~(1 << level)
            if sibling is None or sibling[0] != level or self._held(parent, parent + (2 << level)):
                break
            del nodes[start ^ (1 << level)]
            digest = node_hash(sibling[1], digest) if start != parent else node_hash(digest, sibling[1])
            start, level = parent, level + 1
        nodes[start] = (level, digest)

    def want(self, size):
        bisect.insort(self.bounds, size)

    def unwant(self, size):
        del self.bounds[bisect.bisect_left(self.bounds, size)]
        i = bisect.bisect_left(self.bounds, size)
        if i < len(self.bounds) and self.bounds[i] == size:
            return
        for level in range(54):
            left = size >> (level + 1) << (level + 1)
            found = self.nodes.get(left)
            if found is not None and found[0] == level and left + (1 << level) in self.nodes:
                if self.nodes[left + (1 << level)][0] == level:
                    del self.nodes[left]
                    self.put(left, level, found[1])

    def prefix(self):
        at = 0
        while at in self.nodes:
            at += 1 << self.nodes[at][0]
        return at

    def root(self, size):
        """Of the first `size` leaves, which are all known and end where a subtree does."""
        stack, at = [], 0
        while at < size:
            level, digest = self.nodes[at]
            push(stack, at, level, digest)
            at += 1 << level
        return fold(stack)

    def take(self, begin, end):
        """Removes and returns the subtrees inside [begin, end)."""
        if end - begin > 4 * len(self.nodes):
            inside = sorted(at for at in self.nodes if begin <= at < end)
        else:
            inside = [at for at in range(begin, end) if at in self.nodes]
        return [(at,) + self.nodes.pop(at) for at in inside]


class Claim:
    """A subtree that a `gap` line gave the hash of, whose lines may still come."""

    def __init__(self, start, level, digest, index):
        self.start, self.level, self.digest, self.index = start, level, digest, index
        self.lines = Subtrees()


class Epoch:
    def __init__(self, log, sink, epoch):
        self.log, self.sink, self.epoch = log, sink, epoch
        self.got = Spans()
        self.unbound = Spans()
        self.late = Spans()
        self.told = []  # numbers that `gap` lines speak of: (from, to, index, reason, hashed), disjoint, in order
        self.tree = Subtrees()
        self.waiting = []  # [size, order, root or None, index]; without a root: the close's own tree
        self.order = 0
        self.claimed = Spans()  # leaves that a hash of the sink stands for
        self.claims = {}  # (first leaf, level) -> Claim whose lines can still be held to its hash
        self.conflicts, self.omitted = [], 0
        self.count = 0
        self.greatest = 0
        self.spoke = 0
        self.close = None
        self.matched = 0
        self.stated = None
        self.signed, self.unsigned = {}, 0
        self.first = self.last = None
        self.last_at = None
        self.opening = None

    def _conflict(self, kind, begin, end, index, computed=None):
        if len(self.conflicts) >= MAX_CONFLICTS:
            self.omitted += 1
            return
        found = {"kind": kind, "from": begin, "to": end, "index": index}
        if computed is not None:
            found["computed"] = to64(computed)
        self.conflicts.append(found)

    def apply(self, entry, lateness, close_timeout):
        """Takes in the next entry of this epoch. Limits in milliseconds, by the policy in force for the entry."""
        said, index = entry.said, entry.index
        seq, kind, attrs = said["seq"], entry.kind, entry.attrs
        if entry.conflict is not None or seq in self.got:
            self._conflict("number", seq, seq + 1, index)
            return
        at = entry.at
        close = self.close
        if (
            entry.late
            or (close is not None and at - close["at"] > lateness)
            or (self.last_at is not None and at - self.last_at > close_timeout)
        ):
            self.late.add(seq, seq + 1)
        self.last_at = at
        place = {"index": index, "received": entry.received}
        if self.first is None:
            self.first = place
        self.last = place
        self.got.add(seq, seq + 1)
        self.count += 1
        self.greatest = max(self.greatest, seq)
        if entry.signed is None:
            self.unsigned += 1
        else:
            self.signed[entry.signed] = self.signed.get(entry.signed, 0) + 1
        if kind not in ("gap", "epoch.close"):
            self.spoke = max(self.spoke, seq)
        if kind == "epoch.open" and seq == 1:
            self.opening = {
                mine: attrs[theirs]
                for mine, theirs in (("counter", "counter"), ("previous", "prev_epoch"), ("size", "prev_size"), ("root", "prev_root"))
                if theirs in attrs
            }
        leaf = seq - 1
        beside = leaf in self.claimed
        if kind == "epoch.close" and (close is None or seq > close["seq"]):
            self.close = {"seq": seq, "index": index, "at": at, "root": None}
            if not beside:
                self._want(seq, None, index)
        if kind in ("heartbeat", "session.close", "epoch.close"):
            size = attrs["size"]
            if size != seq - 1:
                self._conflict("misstated", seq, seq + 1, index)
            else:
                if not beside:
                    self._want(size, attrs["root"], index)
                if self.stated is None or size >= self.stated["size"]:
                    self.stated = {"size": size, "index": index, "dropped": attrs["dropped"], "filtered": attrs["filtered"]}
        digest = leaf_hash(entry.body)
        if beside:
            self.unbound.add(seq, seq + 1)
            self._held_to_claim(leaf, digest)
        else:
            self.tree.put(leaf, 0, digest)
        if kind == "gap":
            self._gap(attrs, seq, index)
        self._compare()

    def _want(self, size, root, index):
        self.order += 1
        bisect.insort(self.waiting, (size, self.order, root, index))
        self.tree.want(size)
        if len(self.waiting) > MAX_WAITING:
            self.tree.unwant(self.waiting.pop(0)[0])

    def _held_to_claim(self, leaf, digest):
        for level in range(54):
            claim = self.claims.get((leaf >> level << level, level))
            if claim is None:
                continue
            claim.lines.put(leaf, 0, digest)
            self._settle(claim)
            return

    def _settle(self, claim):
        found = claim.lines.nodes.get(claim.start)
        if found is None or found[0] != claim.level:
            return
        del self.claims[(claim.start, claim.level)]
        begin, end = claim.start + 1, claim.start + (1 << claim.level) + 1
        if found[1] == claim.digest:
            self.unbound.remove(begin, end)
        else:
            self._conflict("gap", begin, end, claim.index, found[1])

    def _gap(self, attrs, seq, index):
        begin, end = attrs["first"], attrs["last"] + 1
        if end > seq:
            self._conflict("misstated", seq, seq + 1, index)
            return
        nodes = decompose(begin - 1, end - 1)
        hashes = attrs.get("hashes", [])
        hashed = len(hashes) == len(nodes)
        self._disclose(begin, end, index, attrs["reason"], hashed)
        if not hashed:
            return
        for (start, level), digest in zip(nodes, hashes):
            self._claim(start, level, b64(digest, "a hash", 32), index)

    def _disclose(self, begin, end, index, reason, hashed):
        at = bisect.bisect_right(self.told, (begin,))
        if at and self.told[at - 1][1] > begin:
            at -= 1
        kept = []
        upto = at
        cursor = begin
        while upto < len(self.told) and self.told[upto][0] < end:
            part = self.told[upto]
            if cursor < part[0]:
                kept.append((cursor, part[0], index, reason, hashed))
            kept.append(part)
            cursor = max(cursor, part[1])
            upto += 1
        if cursor < end:
            kept.append((cursor, end, index, reason, hashed))
        self.told[at:upto] = kept

    def _claim(self, start, level, digest, index):
        end = start + (1 << level)
        if all(self.claimed.covers(a - 1, b - 1) for a, b in self.got.holes(start + 1, end + 1)):
            return  # every leaf is a line or under a hash already
        inside = list(self.got.within(start + 1, end + 1))
        over = self.claimed.meets(start, end)
        claim = Claim(start, level, digest, index)
        if inside or over:
            for size, order, root, by in [each for each in self.waiting if start < each[0] < end]:
                self.waiting.remove((size, order, root, by))
                self.tree.unwant(size)
            for a, b in inside:
                self.unbound.add(a, b)
        taken = self.tree.take(start, end)
        if over:
            for key in [key for key in self.claims if start <= key[0] < end]:
                del self.claims[key]
        else:
            self.claims[(start, level)] = claim
            for node in taken:
                claim.lines.put(*node)
        self.claimed.add(start, end)
        self.tree.put(start, level, digest)

    def _compare(self):
        if not self.waiting:
            return
        known = self.tree.prefix()
        due = []
        while self.waiting and self.waiting[0][0] <= known:
            due.append(self.waiting.pop(0))
        for size, _, root, index in due:
            computed = self.tree.root(size)
            if root is None:
                if self.close is not None and self.close["seq"] == size:
                    self.close["root"] = computed
            elif to64(computed) == root:
                self.matched = max(self.matched, size)
            else:
                begin = min(self.matched, size) + 1
                self._conflict("root", begin, max(size, begin) + 1, index, computed)
        for size, _, _, _ in due:
            self.tree.unwant(size)

    def findings(self, account):
        """Members of the statement that follow from the lines and from what a later epoch says (section 1)."""
        if account is not None and not (account["signed"] or not self.signed):
            account = None
        if account is not None and account["size"] is None:
            account = None
        conflicts = list(self.conflicts)
        close, greatest = self.close, self.greatest
        ending = None
        if close is not None and self.spoke < close["seq"] and self.got.covers(close["seq"], greatest + 1):
            ending = {"by": "close", "seq": close["seq"], "index": close["index"], "compared": self.matched >= close["seq"] - 1}
        end = greatest + 1
        if account is not None:
            size, index = min(account["size"], MAX_INT - 1), account["index"]
            told = None
            if account["root"] is not None:
                if close is not None and close["seq"] == size and close["root"] is not None:
                    told = close["root"]
                elif size == greatest and self.tree.prefix() == greatest:
                    told = self.tree.root(size)
            least = max(self.spoke, close["seq"] if close else 0)
            agrees = told is not None and to64(told) == account["root"]
            if size < least:
                conflicts.append({"kind": "rewound", "from": size + 1, "to": least + 1, "index": index})
            elif told is not None and not agrees:
                conflicts.append(
                    {
                        "kind": "successor",
                        "from": self.matched + 1,
                        "to": max(size, self.matched) + 1,
                        "index": index,
                        "computed": to64(told),
                    }
                )
            end = max(end, size + 1)
            if ending is None:
                ending = {"by": "successor", "epoch": account["epoch"], "index": index, "size": size, "compared": agrees}
        missing = []
        for begin, upto in self.got.holes(1, end):
            at = bisect.bisect_right(self.told, (begin,))
            if at and self.told[at - 1][1] > begin:
                at -= 1
            while begin < upto:
                part = self.told[at] if at < len(self.told) and self.told[at][0] < upto else None
                if part is None or begin < part[0]:
                    stop = upto if part is None else part[0]
                    missing.append({"from": begin, "to": stop})
                else:
                    stop = min(upto, part[1])
                    gap = {"index": part[2], "reason": part[3], "hashed": part[4]}
                    if missing and missing[-1]["to"] == begin and missing[-1].get("gap") == gap:
                        missing[-1]["to"] = stop
                    else:
                        missing.append({"from": begin, "to": stop, "gap": gap})
                    at += 1
                begin = stop
        found = {
            "lines": self.count,
            "next": end,
            "missing": missing,
            "unbound": self.unbound.listed(),
            "late": self.late.listed(),
            "conflicts": conflicts,
            "conflictsOmitted": self.omitted,
            "matched": self.matched,
            "signed": dict(self.signed),
            "unsigned": self.unsigned,
        }
        for key, value in (
            ("ending", ending),
            ("stated", self.stated),
            ("first", self.first),
            ("last", self.last),
            ("opening", self.opening),
        ):
            if value is not None:
                found[key] = value
        return found


STATUSES = ("conflict", "gap", "unclosed", "silent", "open", "complete")


def worst(statuses):
    found = set(statuses)
    for status in STATUSES:
        if status in found:
            return status
    return "complete"


def states_more_lost(found):
    stated = found.get("stated")
    if stated is None:
        return False
    return stated["dropped"] + stated["filtered"] > sum(hole["to"] - hole["from"] for hole in found["missing"])


def judged(found, time, limits):
    """Status, overdue and unknown of an epoch's findings (section 1, section 7)."""
    ending = found.get("ending")
    quiet = millis(time) - millis(found["last"]["received"]) if "last" in found else 0
    overdue = []
    if ending is None:
        if limits["heartbeat"] > 0 and quiet > (limits["heartbeat"] + limits["lateness"]) * 1000:
            overdue.append("heartbeat")
        if quiet > limits["closeTimeout"] * 1000:
            overdue.append("close")
    unknown = []
    if found["unsigned"] > 0 or not found["signed"]:
        unknown.append("sender")
    if ending is None:
        unknown.append("tail")
    compared = found["matched"]
    if ending is not None and ending["by"] == "successor" and ending["compared"]:
        compared = ending["size"]
    last = ending["seq"] if ending is not None and ending["by"] == "close" else found["next"]
    if compared < last - 1:
        unknown.append("content")
    if found["conflicts"] or found["conflictsOmitted"]:
        status = "conflict"
    elif found["missing"] or found["unbound"]:
        status = "gap"
    elif ending is not None:
        status = "complete" if ending["compared"] and not states_more_lost(found) else "gap"
    elif "close" in overdue:
        status = "unclosed"
    else:
        status = "silent" if overdue else "open"
    return {"status": status, "overdue": overdue, "unknown": unknown}


# ---------------------------------------------------------------------------------------------------------------------
# The epochs of a sink (coverage, section 4)


class Chain:
    def __init__(self):
        self.links = {}  # epoch -> link, in the order of their first entries
        self.next = {}  # epoch -> epochs that name it as theirs before, in the order of their openings
        self.unopened = {}  # epochs of which no opening counts, in the order of their first entries
        self._found = self._starts = None

    def apply(self, entry, keyed):
        """
        `keyed` tells whether a key was declared for the sink when the entry was written. What is not signed then tells no
        more than that its epoch has a line.
        """
        if entry.conflict is not None:
            return
        said = entry.said
        link = self.links.get(said["epoch"])
        number_one = said["seq"] == 1
        opens = entry.kind == "epoch.open" and number_one
        if link is not None and (link["opened"] is not None or link["odd"] if number_one else link["spoke"]):
            return
        counts = entry.signed is not None or not keyed()
        if link is None:
            link = self.links[said["epoch"]] = {
                "epoch": said["epoch"],
                "first": entry.index,
                "opened": None,
                "signed": False,
                "spoke": False,
                "odd": False,
                "counter": None,
                "previous": None,
                "size": None,
                "root": None,
            }
            self.unopened[link["epoch"]] = True
        self._found = self._starts = None
        if not (opens and counts):
            # Its number 1 is there, and is no opening that counts.
            link["odd"] = link["odd"] or number_one
            link["spoke"] = link["spoke"] or counts
            return
        self.unopened.pop(link["epoch"], None)
        attrs = entry.attrs
        link["opened"] = entry.index
        link["signed"] = entry.signed is not None
        link["counter"] = attrs.get("counter")
        link["previous"] = attrs.get("prev_epoch")
        link["size"] = attrs.get("prev_size")
        link["root"] = attrs.get("prev_root")
        if link["previous"] is not None:
            self.next.setdefault(link["previous"], []).append(link["epoch"])

    def account(self, epoch):
        """What a later epoch says of this one: of those that state a size, a signed one, the first in the log."""
        naming = [self.links[each] for each in self.next.get(epoch, ())]
        naming.sort(key=lambda link: (not link["signed"], link["opened"]))
        for link in naming:
            if link["size"] is not None:
                return {
                    "epoch": link["epoch"],
                    "index": link["opened"],
                    "signed": link["signed"],
                    "size": link["size"],
                    "root": link["root"],
                }
        return None

    def before(self, epoch):
        """What the opening of an epoch names: a link, or "unopened", "first" (it names none), "lost" (there is none)."""
        link = self.links.get(epoch)
        if link is None or link["opened"] is None:
            return "unopened"
        if link["previous"] is None:
            return "lost" if link["counter"] else "first"
        named = self.links.get(link["previous"])
        return "lost" if named is None or named["opened"] is None and not named["spoke"] else named

    def _way(self, epoch, ours, ways):
        """Where going back from an epoch ends, as (how, at which epoch). `ways` remembers it of those passed."""
        passed = []
        at = epoch
        while True:
            link = self.before(at)
            if isinstance(link, str):
                found = (link, at)
            elif link["epoch"] in ours:
                found = ("ours", link["epoch"])
            elif link["epoch"] in ways:
                found = ways[link["epoch"]] or ("circle", at)
            else:
                at = link["epoch"]
                ways[at] = None
                passed.append(at)
                continue
            for each in passed:
                ways[each] = found
            return found

    def beside(self, ours):
        """
        Section 5. `ours`: epoch -> (opens, closes). The epochs that may have held lines of the session that were lost, by
        their first entries, and those before which a lost one may have.
        """
        first = {epoch: self.links[epoch]["first"] for epoch in ours}
        epochs, lost, ways, added = set(), set(), {}, set()
        earliest, alone = min(first.values()), []
        unclosed = min((first[epoch] for epoch, (_, closes) in ours.items() if not closes), default=None)
        for epoch, (opens, closes) in ours.items():
            before = self.before(epoch)
            if not opens and before == "lost":
                lost.add(epoch)
            elif not opens and isinstance(before, dict) and before["epoch"] not in ours:
                epochs.add(before["epoch"])
            if len(ours) > 1:
                how, at = self._way(epoch, ours, ways)
                doubtful = earliest < first[epoch] and (not opens or unclosed is not None and unclosed < first[epoch])
                if how == "ours" and not (opens and ours[at][1]):
                    while before["epoch"] != at and before["epoch"] not in added:
                        added.add(before["epoch"])
                        before = self.before(before["epoch"])
                elif how == "lost" and doubtful:
                    lost.add(at)
                elif how == "unopened" and doubtful and at != epoch:
                    epochs.add(at)
            if closes:
                continue
            after = self.next.get(epoch, ())
            epochs.update(each for each in after if each not in ours)
            if self._alone(epoch):
                alone.append(self.links[epoch])
        for each in alone:
            epochs.update(epoch for epoch in self._may_follow(each) if epoch not in ours)
        lost.update(self._lost_after(ours, first))
        return sorted(epochs | added, key=lambda each: self.links[each]["first"]), lost

    def _alone(self, epoch):
        """Whether nothing names it that has another line. One that only opened was killed in doing so."""
        return not any(self.links[each]["spoke"] for each in self.next.get(epoch, ()))

    def _may_follow(self, alone):
        """Epochs that do not name this one, and that may be what came after it all the same."""
        if self._starts is None:
            links = self.links.values()
            self._starts = [link for link in links if link["opened"] is not None and link["previous"] is None]
        root = None
        for link in self._starts:
            if link["first"] <= alone["first"]:
                continue
            if link["epoch"] in self.next:
                root = root or self._root(alone["epoch"])
                if root == link["epoch"]:
                    continue
            yield link["epoch"]
            if link["spoke"]:
                break
        for epoch in self.unopened:
            link = self.links[epoch]
            if link["spoke"] and link["first"] > alone["first"]:
                yield epoch
                if not link["odd"]:
                    break

    def _root(self, epoch):
        """The epoch at which going back from one ends."""
        passed = set()
        while True:
            passed.add(epoch)
            before = self.before(epoch)
            if isinstance(before, str) or before["epoch"] in passed:
                return epoch
            epoch = before["epoch"]

    def _lost_after(self, ours, first):
        """Epochs that show a loss after one in which the session was not closed, and before the next that names it."""
        places = sorted(ours, key=lambda epoch: first[epoch])
        for hole in self.findings()["lost"]:
            before = [epoch for epoch in places if first[epoch] < hole["index"]]
            if not before or before[-1] == hole["before"] or ours[before[-1]][1]:
                continue
            if len(before) == len(places) or self._alone(before[-1]):
                yield hole["before"]

    def findings(self):
        if self._found is None:
            self._found = self._findings()
        return self._found

    def _findings(self):
        links = list(self.links.values())
        opened = [link for link in links if link["opened"] is not None]
        beginnings = [link["epoch"] for link in opened if link["previous"] is None]
        counters = sorted(link["counter"] for link in links if link["counter"] is not None)
        lost, miscounted = [], []
        for link in opened:
            counter, previous = link["counter"], link["previous"]
            before = None if previous is None else self.links.get(previous)
            if before is not None and before["opened"] is None and not before["spoke"]:
                before = None
            if before is not None:
                if before["counter"] is not None and counter != before["counter"] + 1:
                    miscounted.append({"epoch": link["epoch"], "index": link["opened"]})
                continue
            if previous is None and not counter:
                continue
            hole = {"before": link["epoch"], "index": link["opened"]}
            if previous is not None:
                hole["epoch"] = previous
                if link["size"] is not None:
                    hole["size"] = link["size"]
                if link["root"] is not None:
                    hole["root"] = link["root"]
            at = bisect.bisect_left(counters, counter or 0)
            begin = counters[at - 1] + 1 if at else 0
            if len(beginnings) <= 1 and counter is not None and begin < counter:
                hole["counters"] = {"from": begin, "to": counter}
            lost.append(hole)
        branches = []
        for previous, naming in self.next.items():
            if len(naming) < 2:
                continue
            spoken = sorted((self.links[epoch] for epoch in naming if self.links[epoch]["spoke"]), key=lambda link: link["first"])
            if len(spoken) > 1:
                branches.append(
                    {"previous": previous, "epochs": [link["epoch"] for link in spoken], "index": spoken[-1]["first"]}
                )
        branches.sort(key=lambda branch: branch["index"])
        return {
            "lost": lost,
            "branches": branches,
            "miscounted": miscounted,
            "beginnings": beginnings,
            "unopened": [link["epoch"] for link in links if link["opened"] is None],
        }


# ---------------------------------------------------------------------------------------------------------------------
# Sessions (coverage, section 5)


class Session:
    """What is kept of a session while entries go by; its own lines are read again for a statement."""

    def __init__(self):
        self.extents = {}  # (sink, epoch) -> extent
        self.openers = set()  # (sink, signed)
        self.stories = {}  # sink -> first second story that names the session
        self.story = None  # (index, received) of the first of all
        self.began = {}  # (sink, by) -> (index, received) of its first line of one sort

    def apply(self, entry):
        sink, said = entry.sink, entry.said
        seq, epoch = said["seq"], said["epoch"]
        if entry.conflict is not None:
            self.story = self.story or (entry.index, entry.received)
            self.stories.setdefault(sink, {"epoch": epoch, "from": seq, "to": seq + 1, "index": entry.index})
            return
        by = "agent" if entry.role == "agent" else "other" if entry.signed is None else "signed"
        self.began.setdefault((sink, by), (entry.index, entry.received))
        extent = self.extents.setdefault((sink, epoch), {"first": seq, "last": seq, "opened": None, "closed": None})
        extent["first"] = min(extent["first"], seq)
        extent["last"] = max(extent["last"], seq)
        if entry.kind == "session.open":
            extent["opened"] = seq if extent["opened"] is None else min(extent["opened"], seq)
            if entry.role != "agent":
                self.openers.add((sink, entry.signed is not None))
        if entry.kind == "session.close":
            extent["closed"] = seq if extent["closed"] is None else max(extent["closed"], seq)


def ends_of(extent):
    """Whether a session opens in an epoch, and whether it closes there."""
    opened, closed = extent["opened"], extent["closed"]
    return opened is not None and opened == extent["first"], closed is not None and closed == extent["last"]


def beside_epoch(found):
    """What an epoch beside a session keeps it from: (statuses, reasons)."""
    epoch, statuses, reasons = found["epoch"], [], []

    def because(status, reason, **more):
        statuses.append(status)
        reasons.append(dict(more, reason=reason, epoch=epoch, beside=True))

    for each in found["conflicts"]:
        if each["kind"] != "number":
            because("conflict", "conflict", **each)
    if found["conflictsOmitted"]:
        because("conflict", "conflicts_omitted", count=found["conflictsOmitted"])
    for name in ("missing", "unbound"):
        for each in found[name]:
            because("gap", name, **each)
    ending = found.get("ending")
    if ending is not None and not ending["compared"]:
        because("gap", "root_not_compared")
    if "close" in found["overdue"]:
        because("unclosed", "overdue", what="close")
    if states_more_lost(found):
        stated = found["stated"]
        because("gap", "stated_loss", dropped=stated["dropped"], filtered=stated["filtered"])
    if "sender" in found["unknown"]:
        reasons.append({"reason": "unsigned", "epoch": epoch, "beside": True})
    return statuses, reasons


def in_epoch(epoch, extent, found):
    """What a session's part of an epoch comes to: (span, status, reasons)."""
    said = extent["closed"] if extent["closed"] is not None and extent["closed"] == extent["last"] else None
    begin = extent["first"] if extent["opened"] is not None and extent["opened"] == extent["first"] else 1
    end = max(found["next"], extent["last"] + 1) if said is None else said + 1
    upto = MAX_INT if said is None else end
    reasons, statuses = [], []
    for each in found["conflicts"]:
        if each["from"] < upto and begin < each["to"]:
            statuses.append("conflict")
            reasons.append(dict(each, reason="conflict", epoch=epoch))
    if found["conflictsOmitted"]:
        statuses.append("conflict")
        reasons.append({"reason": "conflicts_omitted", "epoch": epoch, "count": found["conflictsOmitted"]})
    for name in ("missing", "unbound"):
        for each in found[name]:
            if each["from"] < end and begin < each["to"]:
                statuses.append("gap")
                reasons.append(dict(each, reason=name, epoch=epoch))
    ending = found.get("ending")
    if (said is not None and found["matched"] >= said - 1) or (ending is not None and ending["compared"]):
        statuses.append("complete")
    elif said is not None or ending is not None:
        statuses.append("gap")
        reasons.append({"reason": "root_not_compared", "epoch": epoch})
    else:
        overdue = found["overdue"]
        statuses.append("unclosed" if "close" in overdue else "silent" if overdue else "open")
        reasons.extend({"reason": "overdue", "epoch": epoch, "what": what} for what in overdue)
    if states_more_lost(found):
        statuses.append("gap")
        stated = found["stated"]
        reasons.append({"reason": "stated_loss", "epoch": epoch, "dropped": stated["dropped"], "filtered": stated["filtered"]})
    if "sender" in found["unknown"]:
        reasons.append({"reason": "unsigned", "epoch": epoch})
    return {"epoch": epoch, "from": begin, "to": end, "status": worst(statuses)}, reasons


def pair_calls(entries, members_of):
    """Section 5.1: lines about calls, of members, in the log's order."""
    lines = [e for e in entries if e.kind in ("call", "result") and e.conflict is None and e.sink in members_of]
    unnamed = {}
    alike = {}
    for entry in lines:
        call = entry.said.get("call")
        if call is None:
            unnamed[entry.sink] = unnamed.get(entry.sink, 0) + 1
        elif entry.kind == "call" and "match" in entry.said and call not in alike:
            alike[call] = (entry.said["match"], entry.attrs.get("tool", ""))
    groups = {}
    for entry in lines:
        call = entry.said.get("call")
        if call is None:
            continue
        key = ("weak", alike.get(call, call)) if call.startswith("weak:") else call
        groups.setdefault(key, []).append(entry)
    return [seen_call(group) for group in groups.values()], unnamed


def seen_call(group):
    weak = group[0].said["call"].startswith("weak:")
    by_sink = {}
    for entry in group:
        by_sink.setdefault(entry.sink, []).append(entry)
    seen = [
        {
            "sink": sink,
            "calls": [e.index for e in by_sink[sink] if e.kind == "call"],
            "results": [e.index for e in by_sink[sink] if e.kind == "result"],
        }
        for sink in sorted(by_sink)
    ]

    def compare(kind):
        stated = [[e.said["match"] for e in lines if e.kind == kind and "match" in e.said] for lines in by_sink.values()]
        stated = sorted((some for some in stated if some), key=lambda some: -len(some))
        if not stated:
            return "untold"
        if not weak:
            if len({match for some in stated for match in some}) > 1:
                return "different"
        for fewer in stated[1:] if weak else ():
            left = list(stated[0])
            for match in fewer:
                if match not in left:
                    return "different"
                left.remove(match)
        return "same" if len(stated) > 1 else "one"

    return {
        "calls": list(dict.fromkeys(entry.said["call"] for entry in group)),
        "weak": weak,
        "identical": max(max(len(s["calls"]), len(s["results"])) for s in seen) if weak else 1,
        "seen": seen,
        "arguments": compare("call"),
        "outcome": compare("result"),
    }


# ---------------------------------------------------------------------------------------------------------------------
# Policies (coverage, section 6)

DEFAULT_POLICY = {
    "v": 1,
    "public": False,
    "sessions": [],
    "heartbeat": 60,
    "lateness": 120,
    "closeTimeout": 3600,
    "attrs": "minimal",
}
_YEAR = 366 * 86400
_rule_name = text_of(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"))
_RULE = {"kind": _rule_name, "opens": list_of(_sink, 1, 64), "required": list_of(_sink, 0, 64)}
_POLICY = {
    "v": whole(1, 1),
    "public": is_bool,
    "sessions": lambda value: isinstance(value, list) and len(value) <= 64,
    "heartbeat": whole(0, 86400),
    "lateness": whole(0, _YEAR),
    "closeTimeout": whole(1, _YEAR),
    "retention": whole(1, 36600),
    "attrs": one_of("minimal", "strict"),
}


def read_policy(value):
    """A policy with its defaults, or None for one that can't be read."""
    try:
        policy = dict(DEFAULT_POLICY, **members(value, {}, _POLICY, "a policy"))
        for rule in policy["sessions"]:
            members(rule, _RULE, {"members": list_of(_sink, 0, 64)}, "a rule")
    except Malformed:
        return None
    kinds = [rule["kind"] for rule in policy["sessions"]]
    return policy if len(set(kinds)) == len(kinds) else None


# ---------------------------------------------------------------------------------------------------------------------
# A log, entry by entry


class Log:
    """What entries come to, as of how many were taken in."""

    def __init__(self, log):
        self.log = log
        self.size = 0
        self.policies = [(-1, DEFAULT_POLICY, 0)]
        self.declared = {}  # sink -> [(index, declaration)]
        self.declared_when = {}  # index of a declaration -> received
        self.tokens = {}  # token -> [(index, statement)]
        self.labels = {}  # session -> [(index, statement)]
        self.epochs = {}
        self.chains = {}
        self.sessions = {}
        self._digests = {}

    def apply(self, entry):
        self.size = entry.index + 1
        if not entry.sent:
            self._state(entry)
            return
        said = entry.said
        key = (entry.sink, said["epoch"])
        epoch = self.epochs.get(key)
        if epoch is None:
            epoch = self.epochs[key] = Epoch(self.log, *key)
        policy = self.policies[-1][1]
        epoch.apply(entry, policy["lateness"] * 1000, policy["closeTimeout"] * 1000)
        chain = self.chains.get(entry.sink)
        if chain is None:
            chain = self.chains[entry.sink] = Chain()
        chain.apply(entry, lambda: "key" in (self.declaration(entry.sink, entry.index) or {}))
        name = said.get("session")
        if name is not None:
            session = self.sessions.get(name)
            if session is None:
                session = self.sessions[name] = Session()
            session.apply(entry)

    def _state(self, entry):
        said = entry.said
        if entry.kind in ("log.genesis", "policy.set"):
            policy = read_policy(said["policy"]) if isinstance(said["policy"], dict) else None
            if policy is not None:
                self.policies.append((entry.index, policy, entry.index))
        elif entry.kind == "sink.declared":
            self.declared.setdefault(said["sink"], []).append((entry.index, said))
            self.declared_when[entry.index] = entry.received
        elif entry.kind == "token.issued":
            self.tokens.setdefault(said["token"], []).append((entry.index, said))
        elif entry.kind == "label.set":
            self.labels.setdefault(said["session"], []).append((entry.index, said))

    def policy_at(self, index):
        """(policy, index of the entry that set it) for the entry at `index`."""
        for at, policy, by in reversed(self.policies):
            if at < index:
                return policy, by
        return self.policies[0][1:]

    def policy_digest(self, policy):
        known = self._digests.get(id(policy))
        if known is None:
            known = self._digests[id(policy)] = (digest_of(jcs(policy)), policy)
        return known[0]

    def declaration(self, sink, index):
        """What was declared last for a sink before `index`."""
        found = None
        for at, said in self.declared.get(sink, ()):
            if at >= index:
                break
            found = said
        return found

    def epoch_statement(self, sink, epoch, time, policy=None):
        policy = policy or self.policy_at(self.size)[0]
        known = self.epochs.get((sink, epoch)) or Epoch(self.log, sink, epoch)
        found = known.findings(self.chains[sink].account(epoch) if sink in self.chains else None)
        declared = self.declaration(sink, self.size) or {}
        limits = {
            "heartbeat": declared.get("heartbeat", policy["heartbeat"]),
            "lateness": policy["lateness"],
            "closeTimeout": policy["closeTimeout"],
        }
        found.update(judged(found, time, limits))
        found.update(
            v=1,
            type="epoch",
            log=self.log,
            sink=sink,
            epoch=epoch,
            asOf={"size": self.size, "time": time},
            policy=self.policy_digest(policy),
            limits=limits,
        )
        return found

    def sink_statement(self, sink, time, policy=None):
        policy = policy or self.policy_at(self.size)[0]
        chain = self.chains[sink]
        epochs = [
            {"epoch": epoch, "status": self.epoch_statement(sink, epoch, time, policy)["status"]} for epoch in chain.links
        ]
        found = dict(chain.findings())
        statuses = [each["status"] for each in epochs]
        if found["branches"] or found["miscounted"]:
            statuses.append("conflict")
        if found["lost"] or not epochs:
            statuses.append("silent")
        found.update(
            v=1,
            type="sink",
            log=self.log,
            sink=sink,
            asOf={"size": self.size, "time": time},
            policy=self.policy_digest(policy),
            status=worst(statuses),
            epochs=epochs,
        )
        return found

    def began(self, name):
        """(index, received) of the entry by which a session's rules are chosen; None when there is none."""
        began = self.sessions[name].began if name in self.sessions else {}
        declared = [
            (by, each, said)
            for (sink, by), each in began.items()
            for said in [self.declaration(sink, each[0])]
            if said is not None
        ]
        own = [each for by, each, said in declared if by == "signed" or by == "other" and "key" not in said]
        return min(own or [each for _, each, _ in declared] or began.values(), default=None)

    def began_at(self, name):
        began = self.began(name)
        return self.size if began is None else began[0]

    def _declared_for(self, began):
        """Sinks of a session: (required, keyed) as declared last before it began; later ones are not required."""
        sinks = {}
        for sink, declarations in self.declared.items():
            before = [said for index, said in declarations if index < min(began, self.size)]
            if before:
                sinks[sink] = (before[-1].get("required", False), "key" in before[-1])
            elif declarations[0][0] < self.size:
                sinks[sink] = (False, "key" in declarations[0][1])
        return sinks

    def session_statement(self, name, time, entries):
        """`entries`: those of senders that name the session, in the log's order."""
        session = self.sessions.get(name) or Session()
        began_at = self.began_at(name)
        policy, _ = self.policy_at(began_at)
        declared = self._declared_for(began_at)
        openers = {
            sink for sink, signed in session.openers if sink in declared and (signed or not declared[sink][1])
        }
        rules = [rule for rule in policy["sessions"] if openers & set(rule["opens"])]
        if rules:
            required = {sink for rule in rules for sink in rule["required"]}
            others = {sink for rule in rules for sink in rule.get("members", declared)}
        else:
            required = {sink for sink, (needed, _) in declared.items() if needed}
            others = set(declared)
        names = required | others
        began = min((began for (sink, _), began in session.began.items() if sink in names), default=None)
        quiet = 0 if began is None else millis(time) - millis(began[1])
        due = quiet > policy["lateness"] * 1000
        found = []
        for sink in sorted(names):
            member = self._member(session, sink, sink in required, due, time, policy)
            if member is not None:
                found.append(member)
        needed = [member for member in found if member["required"]]
        deciding = needed or found
        calls, unnamed = pair_calls(entries, names)
        statement = {
            "v": 1,
            "type": "session",
            "log": self.log,
            "session": name,
            "asOf": {"size": self.size, "time": time},
            "policy": self.policy_digest(policy),
            "kinds": [rule["kind"] for rule in rules],
            "closed": bool(deciding) and all(member["closed"] for member in deciding),
            "status": worst(member["status"] for member in deciding) if found else "silent",
            "members": found,
            "calls": calls,
            "unnamed": unnamed,
        }
        if began is not None:
            statement["began"] = {"index": began[0], "received": began[1]}
        return statement

    def _member(self, session, sink, required, due, time, policy):
        parts = [
            (epoch, extent, self.epoch_statement(sink, epoch, time, policy))
            for (by, epoch), extent in session.extents.items()
            if by == sink
        ]
        parts.sort(key=lambda part: part[2]["first"]["index"])
        reasons = []
        story = session.stories.get(sink)
        if story is not None:
            reasons.append(dict(story, reason="conflict", kind="number"))
        if not parts:
            if story is None and not required:
                return None
            if required and due:
                reasons.append({"reason": "never_spoke"})
            status = "conflict" if story is not None else "silent" if due else "open"
            return {
                "sink": sink,
                "required": required,
                "status": status,
                "closed": False,
                "signed": False,
                "epochs": [],
                "reasons": reasons,
            }
        epochs = []
        for epoch, extent, found in parts:
            covered, why = in_epoch(epoch, extent, found)
            epochs.append(covered)
            reasons.extend(why)
        statuses = [each["status"] for each in epochs]
        if story is not None:
            statuses.append("conflict")
        ours = {epoch: ends_of(extent) for epoch, extent, _ in parts}
        beside, goes_on = self.chains[sink].beside(ours)
        others = [self.epoch_statement(sink, epoch, time, policy) for epoch in beside]
        for other in others:
            bad, why = beside_epoch(other)
            statuses.extend(bad)
            reasons.extend(why)
        chain = self.chains[sink].findings()
        _, last, last_found = parts[-1]
        for lost in chain["lost"]:
            if lost["before"] in goes_on:
                statuses.append("silent")
                reasons.append({"reason": "lost_epoch", "lost": lost})
        ours = set(ours)
        twisted = [each for each in chain["branches"] if ours & set(each["epochs"])]
        twisted += [each for each in chain["miscounted"] if each["epoch"] in ours]
        for each in twisted:
            statuses.append("conflict")
            reasons.append({"reason": "chain", "index": each["index"]})
        return {
            "sink": sink,
            "required": required,
            "status": worst(statuses),
            "closed": "ending" in last_found or ends_of(last)[1],
            "signed": all("sender" not in found["unknown"] for found in [found for _, _, found in parts] + others),
            "epochs": epochs,
            "reasons": reasons,
        }


# ---------------------------------------------------------------------------------------------------------------------
# Authority of a call (receipt, section 7)

LEVELS = ("asserted", "observed", "corroborated", "replayed", "adjudicated")
SEES_A_BOUNDARY = ("proxy", "hook", "other")
CITED = ("pre", "call", "result")


class Evidence:
    """A session's statement with what it is judged by: entries before `log.size`, as far as they are at hand."""

    def __init__(self, log, session, statement, entries, entry_at):
        self.log, self.session, self.statement = log, session, statement
        self.members = {member["sink"] for member in statement["members"]}
        self.verdicts = [e for e in entries if e.kind == "verdict" and e.sink in self.members]
        self._citing = None  # verdicts by the call line that they cite
        last = {}  # of an auditor, the last label about the same counts, where it stands
        for index, said in log.labels.get(session, ()):
            if index < log.size:
                last[(said["by"], said.get("call"))] = (index, said)
        self.labels = sorted(last.values(), key=lambda label: label[0])
        self._entry_at = entry_at

    def entry_at(self, index):
        return self._entry_at(index) if index < self.log.size else None

    def declared(self, entry):
        return self.log.declaration(entry.sink, entry.index) or {}

    def domain(self, entry):
        """Trust domain of the sink as declared before the entry, else of the token."""
        found = self.declared(entry).get("domain")
        if found is None and entry.token in self.log.tokens:
            found = self.log.tokens[entry.token][-1][1].get("domain")
        return found

    def verifier_fault(self, entry):
        declared = self.declared(entry)
        if entry.role != "verifier":
            return "role"
        if entry.signed is None or entry.signed != declared.get("fingerprint"):
            return "unkeyed"
        if declared.get("sinkKind") != "verifier":
            return "kind"
        return None if entry.conflict is None else "conflict"

    def cited(self, verdict):
        """(index, leaf) of what a verdict cites in full."""
        attrs = verdict.attrs
        both = ((attrs.get(part + "_index"), attrs.get(part + "_leaf")) for part in CITED)
        return [(index, leaf) for index, leaf in both if index is not None and leaf is not None]

    def citation_fault(self, verdict):
        for index, leaf in self.cited(verdict):
            entry = self.entry_at(index)
            if entry is None or not entry.sent or index >= verdict.index:
                return "absent"
            if to64(entry.leaf) != leaf:
                return "leaf"
        return None

    def replay_fault(self, verdict, names):
        fault = self.verifier_fault(verdict)
        if fault is not None:
            return fault
        attrs = verdict.attrs
        if (
            attrs.get("mode") not in ("session", "isolated", "group")
            or attrs.get("replays") == 0
            or attrs.get("status") not in ("PASS", "WARN", "FAIL")
        ):
            return "not_run"
        cited = self.cited(verdict)
        if len(cited) != 3:
            return "not_cited"
        fault = self.citation_fault(verdict)
        if fault is not None:
            return fault
        pre, begun, ended = (self.entry_at(index) for index, _ in cited)
        for entry, kind in ((pre, "state"), (begun, "call"), (ended, "result")):
            if (
                entry.kind != kind
                or entry.said.get("session") != self.session
                or entry.conflict is not None
                or entry.sink not in self.members
            ):
                return "other"
        named = begun.said.get("call")
        if named is None or named != ended.said.get("call") or named not in names:
            return "other"
        if pre.attrs.get("phase") in ("post", "close"):
            return "other"
        if "pre" in attrs and attrs["pre"] != pre.attrs.get("state"):
            return "other"
        if begun.index >= ended.index or pre.index >= ended.index:
            return "other"
        return None if pre.at < ended.at else "head"

    def replays(self, call):
        """([(verdict, cited call, status, recorder, domain)] of those that hold, [reason] of those that do not)."""
        own = {index for seen in call["seen"] for index in seen["calls"]}
        names = set(call["calls"])
        held, reasons = [], []
        if self._citing is None:
            self._citing = {}
            for verdict in self.verdicts:
                self._citing.setdefault(verdict.attrs.get("call_index"), []).append(verdict)
        citing = [verdict for index in own for verdict in self._citing.get(index, ())]
        for verdict in sorted(citing, key=lambda each: each.index):
            about = verdict.attrs["call_index"]
            fault = self.replay_fault(verdict, names)
            if fault is not None:
                reasons.append({"reason": "verdict", "index": verdict.index, "fault": fault})
                continue
            domain = self.domain(verdict)
            recorders = [self.domain(self.entry_at(index)) for index, _ in self.cited(verdict)]
            if domain is not None and domain in recorders:
                recorder = "same domain"
            elif domain is None or None in recorders:
                recorder = "unknown"
            else:
                recorder = "other domain"
            held.append((verdict, about, verdict.attrs["status"], recorder, domain))
        return held, reasons


def is_replayed(call, held):
    cited = {about for _, about, _, _, _ in held}
    return any(len(seen["calls"]) >= call["identical"] and cited.issuperset(seen["calls"]) for seen in call["seen"])


def call_authority(call, evidence, held, rejected):
    """{level, by, reasons} of a call, or of calls that can't be told apart."""
    reasons, sightings = [], []
    names = set(call["calls"])

    def because(reason):
        if reason not in reasons:
            reasons.append(reason)

    for seen in call["seen"]:
        sink = seen["sink"]
        if sink not in evidence.members:
            continue
        for kind, indexes in (("call", seen["calls"]), ("result", seen["results"])):
            for index in indexes:
                entry = evidence.entry_at(index)
                if (
                    entry is None
                    or not entry.sent
                    or entry.conflict is not None
                    or entry.kind != kind
                    or entry.sink != sink
                    or entry.said.get("session") != evidence.session
                    or entry.said.get("call") not in names
                ):
                    because({"reason": "evidence_absent", "index": index})
                    continue
                declared = evidence.declared(entry)
                sees = declared.get("sinkKind")
                observes = False
                if entry.role == "agent":
                    because({"reason": "agent_token", "sink": sink})
                elif entry.signed is None or entry.signed != declared.get("fingerprint"):
                    because({"reason": "unkeyed", "sink": sink})
                elif sees not in SEES_A_BOUNDARY:
                    because(dict({"reason": "self_asserted", "sink": sink}, **({} if sees is None else {"kind": sees})))
                else:
                    observes = True
                sightings.append((entry, observes, evidence.domain(entry)))
    by, level = [], "asserted"
    sayers = {}
    for entry, observes, domain in sightings:
        key = (observes, entry.role, entry.sink, entry.token, entry.signed, domain)
        if key not in sayers:
            sayer = {
                "level": "observed" if observes else "asserted",
                "role": entry.role,
                "sink": entry.sink,
                "token": entry.token,
                "entries": [],
            }
            if domain is not None:
                sayer["domain"] = domain
            if entry.signed is not None:
                sayer["signed"] = entry.signed
            sayers[key] = sayer
            by.append(sayer)
        sayers[key]["entries"].append(entry.index)
    parts = [[each for each in sightings if each[0].kind == kind] for kind in ("call", "result")]
    stated = [part for part in parts if part]
    if stated and all(any(observes for _, observes, _ in part) for part in stated):
        level = "observed"
        agreed = True
        for name, part in zip(("arguments", "outcome"), parts):
            if call[name] == "different":
                reasons.append({"reason": "contradicted", "part": name})
                agreed = False
                continue
            keys = {}
            for entry, observes, domain in part:
                if observes and "match" in entry.said:
                    keys.setdefault(entry.signed, [domain, 0])[1] += 1
            domains = [domain for domain, count in keys.values() if count >= call["identical"]]
            if not domains:
                reasons.append({"reason": "no_match", "part": name})
            if len({domain for domain in domains if domain is not None}) < 2:
                agreed = False
        if agreed:
            level = "corroborated"
        elif not any(reason["reason"] in ("one_domain", "contradicted") for reason in reasons):
            reasons.append({"reason": "one_domain"})
    if call["identical"] > 1 or (call["weak"] and len(call["calls"]) > 1):
        reasons.append({"reason": "one_of_identical", "identical": call["identical"]})
    reasons.extend(rejected)
    for verdict, _, status, recorder, domain in held:
        sayer = {
            "level": "replayed",
            "sink": verdict.sink,
            "token": verdict.token,
            "recorder": recorder,
            "verdict": verdict.index,
            "status": status,
        }
        if domain is not None:
            sayer["domain"] = domain
        by.append(sayer)
    if is_replayed(call, held):
        level = "replayed"
    else:
        reasons.append({"reason": "not_replayed"})
    labels = [(index, said) for index, said in evidence.labels if said.get("call") in call["calls"]]
    if labels and call["identical"] == 1:
        level = "adjudicated"
        by.extend({"level": level, "auditor": said["by"], "label": index} for index, said in labels)
    return {"level": level, "by": by, "reasons": reasons}


# ---------------------------------------------------------------------------------------------------------------------
# Disposition of a session (receipt, section 8)


def _cause(attrs):
    return {"cause": attrs["cause"]} if "cause" in attrs else {}


def judge(evidence):
    """(disposition, [authority of each call], [replays of each call])."""
    statement = evidence.statement
    replays = [evidence.replays(call) for call in statement["calls"]]
    authorities = [
        call_authority(call, evidence, held, rejected) for call, (held, rejected) in zip(statement["calls"], replays)
    ]
    held = [each for each, _ in replays]
    return _disposition(evidence, authorities, held), authorities, held


def _disposition(evidence, authorities, replays):
    statement, labels = evidence.statement, evidence.labels
    found, calls = statement["members"], statement["calls"]
    words = [verdict for verdict in evidence.verdicts if evidence.verifier_fault(verdict) is None]
    status_of = {verdict.index: verdict.attrs.get("status") for verdict in evidence.verdicts}

    reasons = [
        {"reason": "coverage", "sink": member["sink"], "because": member["reasons"]}
        for member in found
        if member["status"] == "conflict"
    ]
    for call in calls:
        for part in ("arguments", "outcome"):
            if call[part] == "different":
                reasons.append({"reason": "sinks_differ", "calls": call["calls"], "part": part})
    subjects = {}
    for index, said in labels:
        subjects.setdefault(said.get("call"), []).append((index, said["says"]))
    for said in subjects.values():
        if len({says for _, says in said}) > 1:
            reasons.append({"reason": "auditors_differ", "labels": [index for index, _ in said]})
    for index, said in labels:
        about = [word for word in words if "call" not in said or word.said.get("call") == said["call"]]
        failed = [word.index for word in about if status_of[word.index] == "FAIL"]
        passed = [word.index for word in about if status_of[word.index] in ("PASS", "WARN")]
        against = failed if said["says"] == "not_violated" else [] if failed else passed
        if against:
            reasons.append({"reason": "auditor_differs", "label": index, "verdicts": against})
    if reasons:
        return {"status": "contested", "reasons": reasons}

    for word in words:
        if status_of[word.index] == "FAIL" and evidence.citation_fault(word) is None:
            reasons.append(dict({"reason": "fail", "verdict": word.index, "sink": word.sink}, **_cause(word.attrs)))
    for index, said in labels:
        if said["says"] == "violated":
            reasons.append({"reason": "auditor", "label": index, "auditor": said["by"]})
    if reasons:
        return {"status": "violated", "reasons": reasons}

    required = [member for member in found if member["required"]]
    for member in required:
        if member["status"] in ("gap", "silent", "unclosed"):
            reasons.append(
                {"reason": "coverage", "sink": member["sink"], "status": member["status"], "because": member["reasons"]}
            )
    if reasons:
        return {"status": "incomplete", "reasons": reasons}

    for member in required or found:
        if member["status"] == "open" or not member["closed"]:
            reasons.append({"reason": "not_closed", "sink": member["sink"]})
    if "began" not in statement:
        reasons.append({"reason": "not_begun"})
    if reasons:
        return {"status": "open", "reasons": reasons}

    if not required:
        reasons.append({"reason": "no_required_sink"})
    for member in found:
        if not member["signed"]:
            reasons.append({"reason": "unsigned", "sink": member["sink"]})
        if member["status"] != "complete":
            reasons.append({"reason": "coverage", "sink": member["sink"], "status": member["status"]})
    affirmed = []
    for call, authority, held in zip(calls, authorities, replays):
        level = authority["level"]
        if (
            level not in ("replayed", "adjudicated")
            or not is_replayed(call, held)
            or any(status == "FAIL" for _, _, status, _, _ in held)
        ):
            reasons.append(
                {"reason": "not_replayed", "calls": call["calls"], "level": level, "because": authority["reasons"]}
            )
            continue
        verdicts = [
            {"verdict": verdict.index, "status": status, "recorder": recorder} for verdict, _, status, recorder, _ in held
        ]
        affirmed.append({"calls": call["calls"], "level": level, "verdicts": verdicts})
    if not calls:
        reasons.append({"reason": "no_call"})
    for sink in sorted(statement["unnamed"]):
        reasons.append({"reason": "unnamed_calls", "sink": sink, "count": statement["unnamed"][sink]})
    holding = {verdict.index for held in replays for verdict, _, _, _, _ in held}
    good = {word.index for word in words}
    for verdict in evidence.verdicts:
        if status_of[verdict.index] == "UNVERIFIED":
            reasons.append(dict({"reason": "verdict_unverified", "verdict": verdict.index}, **_cause(verdict.attrs)))
        elif (
            verdict.index not in good
            or evidence.citation_fault(verdict) is not None
            or ("call_index" in verdict.attrs and verdict.index not in holding)
        ):
            reasons.append({"reason": "verdict_rejected", "verdict": verdict.index})
    if reasons:
        return {"status": "unverified", "reasons": reasons}
    return {
        "status": "affirmed",
        "members": [{"sink": m["sink"], "required": m["required"], "status": "complete"} for m in found],
        "calls": affirmed,
        "warnings": sum(1 for call in affirmed if any(v["status"] == "WARN" for v in call["verdicts"])),
    }


def derive_session(log, name, time, entries, entry_at):
    """
    What a receipt of a session states (receipt, sections 7 to 9), as of the entries that `log` has taken in. `entries`:
    those of senders that name the session and are before `log.size`; `entry_at` gives one by its index, or None.
    """
    statement = log.session_statement(name, time, entries)
    evidence = Evidence(log, name, statement, entries, entry_at)
    disposition, authorities, replays = judge(evidence)
    levels = dict.fromkeys(LEVELS, 0)
    for call, authority in zip(statement["calls"], authorities):
        levels[authority["level"]] += call["identical"]
    recorders = {"same domain": 0, "other domain": 0, "unknown": 0}
    for held in replays:
        for _, _, _, recorder, _ in held:
            recorders[recorder] += 1
    verdicts = {"PASS": 0, "WARN": 0, "FAIL": 0, "UNVERIFIED": 0, "causes": {}}
    for verdict in evidence.verdicts:
        if evidence.verifier_fault(verdict) is None and "status" in verdict.attrs:
            verdicts[verdict.attrs["status"]] += 1
            cause = verdict.attrs.get("cause")
            if cause is not None:
                verdicts["causes"][cause] = verdicts["causes"].get(cause, 0) + 1
    issuers = {}
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(struct.pack(">Q", entry.index) + entry.leaf)
        if entry.token not in issuers and entry.token in log.tokens:
            index, said = log.tokens[entry.token][-1]
            issuer = {"token": entry.token, "role": said["role"], "issuedBy": said["by"], "index": index}
            if "domain" in said:
                issuer["domain"] = said["domain"]
            issuers[entry.token] = issuer
    policy, index = log.policy_at(log.began_at(name))
    return {
        "statement": statement,
        "disposition": disposition,
        "authorities": authorities,
        "policy": {"digest": statement["policy"], "index": index, "document": policy},
        "calls": sum(call["identical"] for call in statement["calls"]),
        "levels": levels,
        "recorders": recorders,
        "verdicts": verdicts,
        "issuers": list(issuers.values()),
        "evidence": {"entries": len(entries), "digest": digest.hexdigest()},
    }


# ---------------------------------------------------------------------------------------------------------------------
# Keys, notes, signatures (note, sections 1-3; receipt, section 1)

DSSE_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_KEY_NAME = re.compile(r"[^\s+\x00-\x20\x7f-\x9f]+")


class Key:
    """A verifier key of a signed note, `<name>+<id>+<base64 of type and key>`, of type Ed25519."""

    def __init__(self, text):
        parts = text.split("+", 2) if isinstance(text, str) and len(text) <= 1024 else []
        if len(parts) != 3 or _KEY_NAME.fullmatch(parts[0]) is None:
            raise Malformed("not a verifier key")
        self.text, self.name, self.id = text, parts[0], parts[1]
        raw = b64(parts[2], "the verifier key", 33)
        if raw[0] != 1:
            raise Malformed("not a verifier key for Ed25519")
        if sha256(self.name.encode() + b"\n" + raw)[:4].hex() != self.id:
            raise Malformed("a verifier key whose id is not that of its name and key")
        self.raw = raw[1:]
        self.curve = Ed25519(self.raw)


class OpenSSL:
    """The `openssl` command, in a directory of its own. Without it `path` is None."""

    def __init__(self):
        self.path = shutil.which("openssl")
        self.version = ""
        if self.path is not None:
            found = self._run("version")
            self.version = found.stdout.decode("utf-8", "replace").strip()
            if not re.match(r"OpenSSL ([3-9]|[1-9][0-9])\.", self.version):
                self.path = None
        self._dir = tempfile.mkdtemp(prefix="belay-verify-")

    def close(self):
        shutil.rmtree(self._dir, ignore_errors=True)

    def _run(self, *args):
        return subprocess.run(
            [self.path] + list(args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False
        )

    def file(self, name, data):
        path = os.path.join(self._dir, name)
        with open(path, "wb") as out:
            out.write(data)
        return path

    def verifies(self, key, message, signature):
        spki = bytes.fromhex("302a300506032b6570032100") + key.raw
        found = self._run(
            "pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER", "-inkey", self.file("key", spki),
            "-in", self.file("message", message), "-sigfile", self.file("signature", signature),
        )  # fmt: skip
        return found.returncode == 0

    def certificate(self, path):
        """{subject alternative names, public key, authority, validity in ms} of a certificate in DER."""
        found = self._run(
            "x509", "-inform", "DER", "-in", path, "-noout", "-dates", "-dateopt", "iso_8601", "-ext", "subjectAltName,basicConstraints", "-pubkey",
        )  # fmt: skip
        if found.returncode != 0:
            raise Malformed("a certificate of the chain is not one")
        text = found.stdout.decode("utf-8", "replace")
        times = re.findall(r"^not(?:Before|After)=([0-9-]{10}) ([0-9:]{8})Z$", text, re.M)
        if len(times) != 2:
            raise Malformed("a certificate without dates")
        names = re.search(r"X509v3 Subject Alternative Name:[^\n]*\n[ \t]*([^\n]*)", text)
        basic = re.search(r"X509v3 Basic Constraints:[^\n]*\n[ \t]*([^\n]*)", text)
        pem = re.search(r"-----BEGIN PUBLIC KEY-----\n(.*?)-----END PUBLIC KEY-----", text, re.S)
        return {
            "names": names.group(1).strip() if names else "",
            "authority": bool(basic and basic.group(1).startswith("CA:TRUE")),
            "key": base64.b64decode(pem.group(1)) if pem else b"",
            "from": _parts("%sT%sZ" % times[0])[0] * 1000,
            "to": _parts("%sT%sZ" % times[1])[0] * 1000,
        }

    def issued(self, path, issuer):
        """
        Whether a certificate was signed by the authority given, or, where that is itself, is a root. Times are looked
        at elsewhere. A partial chain ends in whatever is trusted, a root or not: so it is allowed only below one.
        """
        alone = [] if path == issuer else ["-partial_chain"]
        found = self._run(
            "verify", "-no-CApath", "-no-CAstore", "-no_check_time", *alone, "-check_ss_sig", "-trusted", issuer, path,
        )  # fmt: skip
        return found.returncode == 0

    def pem(self, name, der):
        return self.file(name, pem_of(der))


def pem_of(der):
    text = to64(der)
    lines = "".join(text[i : i + 64] + "\n" for i in range(0, len(text), 64))
    return ("-----BEGIN CERTIFICATE-----\n%s-----END CERTIFICATE-----\n" % lines).encode()


class Chains:
    """Certificate chains over the log's key: each looked at once, then only the time."""

    def __init__(self, openssl):
        self.openssl = openssl
        self._known = {}

    def fault(self, x5c, key, origin, at):
        """None when the chain holds at a time (ms). Raises Undecided without openssl."""
        name = (tuple(x5c), key.raw, origin)
        known = self._known.get(name)
        if known is None:
            try:
                known = self._read(x5c, key, origin)
            except Malformed as error:
                known = str(error)
            self._known[name] = known
        if isinstance(known, str):
            return known
        for i, (begin, end) in enumerate(known):
            if not begin <= at <= end:
                return "certificate %d was not valid then" % i
        return None

    def _read(self, x5c, key, origin):
        if self.openssl.path is None:
            raise Undecided("needs openssl 3, which is not here")
        if len(x5c) < 2:
            raise Malformed("the chain has no log certificate and root")
        paths, found = [], []
        for i, der in enumerate(x5c):
            if not _is_one_der(der):
                raise Malformed("a certificate of the chain is not one, or other bytes follow it")
            paths.append(self.openssl.pem("cert%d.pem" % i, der))
            found.append(self.openssl.certificate(self.openssl.file("cert%d.der" % i, der)))
        for i in range(len(x5c)):
            if (found[i]["authority"]) != (i > 0):
                raise Malformed("certificate %d is %s authority" % (i, "no" if i else "an"))
            if not self.openssl.issued(paths[i], paths[min(i + 1, len(x5c) - 1)]):
                raise Malformed("certificate %d was not issued by %s" % (i, "the next one" if i + 1 < len(x5c) else "itself"))
        if found[0]["names"] != "URI:tlog://" + origin:
            raise Malformed("the log's certificate names another log")
        if found[0]["key"] != bytes.fromhex("302a300506032b6570032100") + key.raw:
            raise Malformed("the log's certificate is for another key")
        return [(each["from"], each["to"]) for each in found]


def _is_one_der(der):
    if len(der) < 4 or der[0] != 0x30:
        return False
    if der[1] < 0x80:
        return len(der) == 2 + der[1]
    count = der[1] & 0x7F
    return 1 <= count <= 3 and len(der) == 2 + count + int.from_bytes(der[2 : 2 + count], "big")


class Undecided(Exception):
    """A check that can't be made here."""


def open_checkpoint(note, key, verify):
    """(size, root) of a signed note that is a checkpoint of the key's log."""
    try:
        data = note.encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed("the note is not UTF-8") from None
    if len(data) > 1000000 or any(ord(c) < 0x20 and c != "\n" for c in note) or note.startswith("\ufeff"):
        raise Malformed("not a signed note")
    at = note.rfind("\n\n")
    text, lines = note[: at + 1], note[at + 2 :].split("\n")
    if at < 0 or lines.pop() != "" or not 1 <= len(lines) <= 100:
        raise Malformed("not a signed note")
    signed = False
    for line in lines:
        parts = line.split(" ")
        if len(parts) != 3 or parts[0] != "\u2014" or _KEY_NAME.fullmatch(parts[1]) is None:
            raise Malformed("a line of the note is no signature")
        raw = b64(parts[2], "a signature of the note")
        if len(raw) < 5:
            raise Malformed("a signature of the note is too short")
        if parts[1] != key.name or raw[:4].hex() != key.id:
            continue
        if not verify(key, text.encode("utf-8"), raw[4:]):
            raise Malformed("the signature of the note does not verify")
        signed = True
    if not signed:
        raise Malformed("the note is not signed by the log's key")
    rows = text.split("\n")[:-1]
    if len(rows) < 3 or "" in rows:
        raise Malformed("the note is no checkpoint")
    if rows[0] != key.name:
        raise Malformed("a checkpoint of another origin")
    if re.fullmatch(r"0|[1-9][0-9]{0,18}", rows[1]) is None:
        raise Malformed("a checkpoint without a size")
    return int(rows[1]), b64(rows[2], "the root", 32)


class Envelope:
    """A DSSE envelope in its one form, with one signature (receipt, section 1)."""

    def __init__(self, data, what):
        value = canonical_json(data, what)
        members(value, {"payload": _text, "payloadType": _text, "signatures": lambda v: isinstance(v, list) and len(v) == 1}, {}, what)
        one = members(value["signatures"][0], {"keyid": _text, "sig": _text}, {}, what)
        if value["payloadType"] != DSSE_TYPE:
            raise Malformed("%s has another type of payload" % what)
        self.payload = b64(value["payload"], "the payload")
        self.keyid = one["keyid"]
        self.signature = b64(one["sig"], "the signature", 64)

    def signed(self):
        """DSSE v1 pre-authentication encoding."""
        kind = DSSE_TYPE.encode()
        return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(self.payload), self.payload)


def _text(value):
    return isinstance(value, str)


def statement_of(payload, what, predicate_type=None):
    """An in-toto Statement v1 in its one form."""
    value = canonical_json(payload, what)
    members(value, {"_type": one_of(STATEMENT_TYPE), "subject": lambda v: isinstance(v, list), "predicateType": _text, "predicate": lambda v: isinstance(v, dict)}, {}, what)
    if predicate_type is not None and value["predicateType"] != predicate_type:
        raise Malformed("%s is not a %s" % (what, predicate_type))
    for each in value["subject"]:
        members(each, {"name": _text, "digest": lambda v: isinstance(v, dict)}, {}, "a subject")
        members(each["digest"], {"sha256": text_of(re.compile(r"[0-9a-f]{64}"))}, {}, "a subject's digest")
    return value


_LOG_MEMBER = {
    "origin": _origin,
    "vkey": text_of(re.compile(r"\S{1,512}")),
    "x5c": lambda value: isinstance(value, list) and len(value) <= 3,
}


def read_log(value):
    members(value, _LOG_MEMBER, {}, "log")
    return value["origin"], value["vkey"], [b64(each, "a certificate") for each in value["x5c"]]


# ---------------------------------------------------------------------------------------------------------------------
# The archive (export, sections 1 and 2)

FILES = (
    "README.md",
    "LIMITATIONS.md",
    "keys.json",
    "chain.pem",
    "checkpoint",
    "filter.json",
    "entries.ndjson",
    "receipts.ndjson",
    "events.csv",
    "sessions.csv",
    "controls.json",
    "controls.csv",
    "report.html",
    "report.pdf",
    "oscal.json",
)
MANIFEST = "manifest.json"
MAX_MANIFEST = 1024 * 1024
LARGE = 0xFFFFFFFF


class Archive:
    """A zip in the one form; `files` has (offset of the content, size, crc) by name."""

    def __init__(self, file):
        self.file = file
        size = os.fstat(file.fileno()).st_size
        if size < 22:
            raise Malformed("too short for a zip")
        end = self._read(size - 22, 22)
        if end[:4] != b"PK\x05\x06":
            raise Malformed("it does not end as a zip without a comment does: it may be cut off, so compare its size and SHA-256 with the sender's")
        count, directory_size, directory = struct.unpack("<HII", end[10:20])
        tail = size - 22
        if directory == LARGE:
            tail -= 76
            if tail < 0:
                raise Malformed("too short for zip64")
            record = self._read(tail, 56)
            directory_size, directory = struct.unpack("<QQ", record[40:56])
        if not 1 <= count <= len(FILES) + 1 or directory_size > 65536 or directory + directory_size != tail:
            raise Malformed("its directory is not where it has to be: changed, cut off, or packed again?")
        self.files = {}
        self._walk(self._read(directory, directory_size), count)
        names = list(self.files)
        if names[-1] != MANIFEST or names != [name for name in (*FILES, MANIFEST) if name in self.files]:
            raise Malformed("its files are not those of an export, in their order")
        at = 0
        headers = []
        for name, (offset, length, crc) in self.files.items():
            local, central = _headers(name, length, crc, at)
            if offset != at or self._read(at, len(local)) != local:
                raise Malformed("the header of %s is not in its one form: changed, or unpacked and packed again?" % name)
            headers.append(central)
            self.files[name] = (at + len(local), length, crc)
            at += len(local) + length
        if at != directory or self._read(at, size - at) != b"".join(headers) + _ending(len(names), at, sum(map(len, headers))):
            raise Malformed("its directory is not in its one form")

    def _read(self, offset, size):
        self.file.seek(offset)
        data = self.file.read(size)
        if len(data) != size:
            raise Malformed("it is cut off")
        return data

    def _walk(self, directory, count):
        at = 0
        for _ in range(count):
            if directory[at : at + 4] != b"PK\x01\x02" or len(directory) < at + 46:
                raise Malformed("its directory is not in its one form")
            crc, packed, size, name_size, extra_size = struct.unpack("<IIIHH", directory[at + 16 : at + 32])
            offset = struct.unpack("<I", directory[at + 42 : at + 46])[0]
            try:
                name = directory[at + 46 : at + 46 + name_size].decode("ascii")
            except UnicodeDecodeError:
                raise Malformed("a file with another name") from None
            extra = directory[at + 46 + name_size : at + 46 + name_size + extra_size]
            numbers = [struct.unpack("<Q", extra[i : i + 8])[0] for i in range(4, len(extra) - 7, 8)]
            if size == LARGE:
                if len(numbers) < 2:
                    raise Malformed("a size without its zip64 field")
                size = numbers[0]
                numbers = numbers[2:]
            if offset == LARGE:
                if not numbers:
                    raise Malformed("an offset without its zip64 field")
                offset = numbers[0]
            if name in self.files:
                raise Malformed("two files of one name")
            self.files[name] = (offset, size, crc)
            at += 46 + name_size + extra_size
        if at != len(directory):
            raise Malformed("its directory is longer than its files")

    def content(self, name, most):
        offset, size, _ = self.files[name]
        if size > most:
            raise Malformed("%s has more than %d bytes" % (name, most))
        return self._read(offset, size)

    def chunks(self, name):
        offset, size, _ = self.files[name]
        with open(self.file.name, "rb", buffering=0) as own:
            own.seek(offset)
            while size > 0:
                data = own.read(min(size, 1 << 20))
                if not data:
                    raise Malformed("%s is cut off" % name)
                size -= len(data)
                yield data

    def lines(self, name, most):
        """(offset in the archive, line without LF), each line at most so many bytes."""
        at = self.files[name][0]
        rest = b""
        for chunk in self.chunks(name):
            data = rest + chunk
            begin = 0
            while True:
                end = data.find(b"\n", begin)
                if end < 0:
                    break
                if end - begin > most:
                    raise Malformed("a line of %s has more than %d bytes" % (name, most))
                yield at, data[begin:end]
                at += end - begin + 1
                begin = end + 1
            rest = data[begin:]
            if len(rest) > most:
                raise Malformed("a line of %s has more than %d bytes" % (name, most))
        if rest:
            raise Malformed("%s does not end with a line feed" % name)


def _headers(name, size, crc, offset):
    """Local and central header of a stored file."""
    raw = name.encode("ascii")
    big, far = size >= LARGE, offset >= LARGE
    shown = LARGE if big else size
    local_extra = struct.pack("<HHQQ", 1, 16, size, size) if big else b""
    numbers = ([size, size] if big else []) + ([offset] if far else [])
    extra = struct.pack("<HH%dQ" % len(numbers), 1, 8 * len(numbers), *numbers) if numbers else b""
    common = (0x0800, 0, 0, 0x0021, crc, shown, shown, len(raw))
    local = b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", 45 if big else 20, *common, len(local_extra)) + raw + local_extra
    version = 45 if extra else 20
    central = b"PK\x01\x02" + struct.pack("<HHHHHHIIIHH", version, version, *common, len(extra))
    central += struct.pack("<HHHII", 0, 0, 0, 0, LARGE if far else offset) + raw + extra
    return local, central


def _ending(count, offset, size):
    far = offset >= LARGE
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count, count, size, LARGE if far else offset, 0)
    if not far:
        return end
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, size, offset)
    return record + b"PK\x06\x07" + struct.pack("<IQI", 0, offset + size, 1) + end


# ---------------------------------------------------------------------------------------------------------------------
# The checks of an export (export, section 9)

CHECKS = (
    "archive",
    "manifest",
    "trust",
    "signature",
    "chain",
    "checkpoint",
    "files",
    "entries",
    "tree",
    "filter",
    "receipts",
    "issued",
    "statements",
    "sessions",
    "periods",
    "tables",
    "time",
)
PREDICATE = "urn:belay:export:v1"
PAGES = 1  # version of the tables' columns that this file makes
# SHA-256 of the JCS of the lists of fixed sentences, which are too long to repeat here.
RULES_DIGEST = "sha256:74df1287ba0856de35f1cdccc66c3790a255225d2cfa9e3862e7aef5cb799ad2"
NOT_PROVEN_DIGEST = "sha256:946a173e7e91c58a57a74e3814be2c4d8b8967c99e5967990c6b8def10fa46b0"
MAX_RECEIPT = 80 * 1024 * 1024
MAX_LINE = 16384
TOLERANCE = 5 * 60 * 1000
OPENSSL_RECEIPTS = 3

FILTER_WORDS = {
    "everything": "Nothing was left out: entries.ndjson has every entry that the checkpoint covers.",
    "sessions": "Left out are entries that belong neither to the collector nor to the sessions named, to the epochs these"
    " are in, or to what their verdicts cite. How many were left out is proven by the hash tree; that none of them"
    " belongs to these sessions is the statement of the collector.",
    "period": "Left out are entries that belong neither to the collector nor to the sessions that began in the period, to"
    " the epochs these are in, or to what their verdicts cite. How many were left out is proven by the hash tree; that no"
    " other session began in the period, and that none of the entries left out belongs to these, is the statement of the"
    " collector.",
}


class Progress:
    """How far it is, on a terminal only."""

    def __init__(self, quiet):
        self.shown = not quiet and sys.stderr.isatty()
        self._next = 0.0

    def __call__(self, what, done, total):
        if not self.shown or clock.monotonic() < self._next:
            return
        self._next = clock.monotonic() + 0.2
        sys.stderr.write("\r\x1b[K%s %d%%" % (what, 100 * done // max(total, 1)))
        sys.stderr.flush()

    def clear(self):
        if self.shown:
            sys.stderr.write("\r\x1b[K")


NOT_REACHED = "not reached"


def printable(text):
    return "".join(c if c.isprintable() else "?" for c in text)


class Verification:
    def __init__(self, path, pinned_key, pinned_root, pinned_origin, now, progress):
        self.path = path
        self.pinned_key, self.pinned_root, self.pinned_origin = pinned_key, pinned_root, pinned_origin
        self.now, self.progress = now, progress
        self.found = {}
        self.openssl = OpenSSL()
        self.by_openssl = 0
        self.heads = {}
        self.chains = Chains(self.openssl)

    # -- bookkeeping

    def run(self, name, make):
        """Makes a check: ok with its text, failed by Malformed, undecided by Undecided."""
        try:
            detail, value = make()
            self.found[name] = ("ok", detail)
            return value
        except Undecided as error:
            self.found[name] = ("undecided", str(error))
        except Malformed as error:
            self.found[name] = ("failed", str(error))
        except (OSError, subprocess.SubprocessError) as error:
            self.found[name] = ("undecided", "could not be looked at: %s" % error)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, MemoryError, RecursionError, struct.error) as error:
            # Input that no rule above foresaw: refused under the check that met it, not passed over.
            self.found[name] = ("failed", "input of a form that is not understood (%s)" % type(error).__name__)
        return None

    def report(self):
        found = [(name,) + self.found.get(name, ("undecided", NOT_REACHED)) for name in CHECKS]
        # Details may repeat what the export says, which is not to move anyone's cursor.
        checks = [(name, status, printable(detail)) for name, status, detail in found]
        statuses = {status for _, status, _ in checks}
        verdict = "INVALID" if "failed" in statuses else "INDETERMINATE" if "undecided" in statuses else "VALID"
        return verdict, checks

    def summary(self):
        """What the export says, (name, text) each, once it was found not to be false: empty otherwise."""
        if any(self.found.get(name, ("undecided",))[0] == "failed" for name in CHECKS) or "tables" not in self.found:
            return []
        last = {receipt.session: receipt.came_to for receipt in self.receipts if receipt.session is not None}
        counts = [(status, sum(1 for each in last.values() if each == status)) for status in DISPOSITIONS]
        sessions = ["%d %s" % (count, status) for status, count in counts if count]
        without = self.counts["sessions"] - len(last)
        if without:
            sessions.append("%d without a receipt" % without)
        asked = "everything"
        if self.asked == "sessions":
            asked = "%d sessions by name" % len(self.request["sessions"])
        elif self.asked == "period":
            asked = "sessions that began from %(from)s to before %(to)s" % self.request["period"]
        looked = "" if self.asked == "sessions" else "; sessions looked for in the first %d" % self.evaluated
        pages = "report.html, report.pdf, README.md, LIMITATIONS.md, controls.* and oscal.json"
        if self.pages != PAGES:
            pages = "events.csv, sessions.csv, " + pages
        rows = [
            ("project", "%s (%s)" % (self.project["name"], self.project["id"])),
            ("log", self.origin),
            ("scope", asked),
            ("as of", "%d entries, %s%s" % (self.size, self.as_of["time"], looked)),
            ("entries", "%d included, %d left out" % (self.counts["entries"], self.counts["omitted"])),
            ("sessions", ", ".join(sessions) or "none"),
            ("pages", "made by version %d, not made again: %s are held to their signed digests" % (self.pages, pages)),
        ]
        return [(name, printable(text)) for name, text in rows]

    def verify(self):
        try:
            with open(self.path, "rb") as file:
                self._verify(file)
        finally:
            self.openssl.close()
            self.progress.clear()
        return self.report()

    def _verify(self, file):
        self.archive = self.run("archive", lambda: self._archive(file))
        if self.archive is None or self.run("manifest", self._manifest) is None:
            return
        self.no_openssl = False
        self.key = None
        self.run("signature", self._signature)
        self.run("chain", self._chain)
        self.run("trust", self._trust)
        self.root = self.run("checkpoint", self._checkpoint)
        self.run("time", self._time)
        self.run("files", self._files)
        if self.root is None or self.found["files"][0] != "ok":
            return
        self.receipts = self.run("receipts", self._receipts)
        if self.receipts is None:
            return
        del self.found["receipts"]  # whether its checkpoints are of these entries is still to come
        self.walked = False
        self.run("entries", self._entries)
        if not self.walked:
            return
        self.run("tree", self._tree)
        self.run("filter", self._filter)
        self.run("receipts", self._receipt_roots)
        self.run("issued", self._issued)
        self.run("statements", self._statements)
        self.run("sessions", self._sessions)
        self.run("periods", self._periods)
        self.run("tables", self._tables)

    # -- archive and manifest

    def _archive(self, file):
        archive = Archive(file)
        return "%d files" % len(archive.files), archive

    def _manifest(self):
        data = self.archive.content(MANIFEST, 2 * MAX_MANIFEST)
        if zlib.crc32(data) != self.archive.files[MANIFEST][2]:
            raise Malformed("it has another CRC than the archive says")
        envelope = Envelope(data, "the manifest")
        if len(envelope.payload) > MAX_MANIFEST:
            raise Malformed("larger than any manifest")
        value = statement_of(envelope.payload, "the manifest", PREDICATE)
        rules = {
            "v": whole(1, 1),
            "log": lambda v: isinstance(v, dict),
            "project": lambda v: isinstance(v, dict),
            "asOf": lambda v: isinstance(v, dict),
            "request": lambda v: isinstance(v, dict),
            "files": lambda v: isinstance(v, list),
            "counts": lambda v: isinstance(v, dict),
            "pages": lambda v: _int(v) and v >= 1,
            "rules": lambda v: digest_of(jcs(v)) == RULES_DIGEST,
            "notProven": lambda v: digest_of(jcs(v)) == NOT_PROVEN_DIGEST,
        }
        made = members(value["predicate"], rules, {}, "the manifest")
        members(made["project"], {"id": text_of(_PROJECT), "name": _is_name200}, {}, "project")
        members(made["asOf"], {"size": _int, "checkpoint": _text, "time": is_moment, "evaluated": _int}, {}, "asOf")
        members(made["counts"], dict.fromkeys(("entries", "omitted", "receipts", "sessions"), _int), {}, "counts")
        request = members(
            made["request"],
            {},
            {"sessions": list_of(_session, 1, 1000), "period": lambda v: isinstance(v, dict), "oscal": lambda v: v is True},
            "request",
        )
        if "sessions" in request and "period" in request:
            raise Malformed("request names sessions and a period")
        if "sessions" in request and request["sessions"] != sorted(set(request["sessions"])):
            raise Malformed("request.sessions is not in order")
        if "period" in request:
            period = members(request["period"], {"from": is_moment, "to": is_moment}, {}, "period")
            if period["from"] >= period["to"]:
                raise Malformed("the period ends before it begins")
        self.origin, self.vkey, self.x5c = read_log(made["log"])
        as_of, counts = made["asOf"], made["counts"]
        if as_of["evaluated"] > as_of["size"]:
            raise Malformed("asOf.evaluated is after its size")
        if counts["entries"] + counts["omitted"] != as_of["size"]:
            raise Malformed("entries included and left out are not as many as the checkpoint covers")
        names = [name for name in FILES if name != "oscal.json" or "oscal" in request]
        if names + [MANIFEST] != list(self.archive.files):
            raise Malformed("the archive does not have the files that were asked for")
        if [each["name"] for each in value["subject"]] != names:
            raise Malformed("its subjects are not the files of the archive")
        self.digests = {}
        for name, subject, file in zip(names, value["subject"], made["files"]):
            members(file, {"name": _text, "size": _int, "crc32": text_of(re.compile(r"[0-9a-f]{8}"))}, {}, "files")
            _, size, crc = self.archive.files[name]
            if file["name"] != name or file["size"] != size or file["crc32"] != "%08x" % crc:
                raise Malformed("%s is not as the archive has it" % name)
            self.digests[name] = subject["digest"]["sha256"]
        if len(made["files"]) != len(names):
            raise Malformed("files is not as long as its subjects")
        self.size, self.evaluated, self.as_of = as_of["size"], as_of["evaluated"], as_of
        self.project, self.request, self.counts = made["project"], request, counts
        self.pages = made["pages"]
        self.asked = "sessions" if "sessions" in request else "period" if "period" in request else "everything"
        self.envelope = envelope
        return "of %s, as of %d entries, %s" % (self.origin, self.size, as_of["time"]), made

    def _trust(self):
        pins = []
        if self.pinned_origin is not None and self.pinned_origin != self.origin:
            raise Malformed("it is of the log %s" % self.origin)
        if self.pinned_key is not None:
            if self.pinned_key != self.vkey:
                name = self.pinned_key.split("+")[0]
                same = "yours has the same name: the log was made anew with another key, or somebody made one that calls itself so"
                raise Malformed("it is signed by another key than yours; %s" % (same if name == self.origin else "yours is of another log, %s" % name))
            pins.append("the key is yours")
        if self.pinned_root is not None:
            if self.found["chain"][0] == "failed" or not self.x5c or self.x5c[-1] != self.pinned_root:
                raise Malformed("its certificates do not lead to your root")
            if self.found["chain"][0] == "ok":
                pins.append("the root is yours, and vouches for the key")
        if not pins:
            raise Undecided("no key of yours and no root to hold it to: anyone may have made it")
        return ", ".join(pins), None

    def _signed(self, key, message, signature, what):
        """Both ways where openssl is there; they have to agree."""
        own = key.curve.verify(message, signature)
        if self.openssl.path is not None and self.openssl.verifies(key, message, signature) != own:
            raise Malformed("openssl and this file differ on the signature of %s" % what)
        return own

    def _by(self):
        return "" if self.openssl.path is not None else " (by this file alone: no openssl 3 here)"

    def _signature(self):
        self.key = Key(self.vkey)
        if self.key.name != self.origin:
            raise Malformed("the key has another name than the log")
        if self.envelope.keyid != self.key.id:
            raise Malformed("it is signed under another key's id")
        if not self._signed(self.key, self.envelope.signed(), self.envelope.signature, "the manifest"):
            raise Malformed("the manifest's signature does not verify")
        return "by %s%s" % (self.vkey, self._by()), self.key

    def _needs_key(self):
        if self.key is None:
            raise Malformed("the key named is not one")

    def _chain(self):
        self._needs_key()
        fault = self.chains.fault(self.x5c, self.key, self.origin, millis(self.as_of["time"]))
        if fault is not None:
            raise Malformed(fault)
        return "%d certificates, valid at %s" % (len(self.x5c), self.as_of["time"]), None

    def _checkpoint(self):
        self._needs_key()
        if self.key.name != self.origin:
            raise Malformed("a checkpoint of another origin")
        verify = lambda key, message, signature: self._signed(key, message, signature, "the checkpoint")
        size, root = open_checkpoint(self.as_of["checkpoint"], self.key, verify)
        if size != self.size:
            raise Malformed("a checkpoint of another size")
        if self.archive.content("checkpoint", 1000000) != self.as_of["checkpoint"].encode("utf-8"):
            raise Malformed("the file checkpoint is not the manifest's")
        return "of %d entries%s" % (size, self._by()), root

    def _files(self):
        total = sum(size for _, size, _ in self.archive.files.values())
        done = 0
        for name, stated in self.digests.items():
            digest, crc = hashlib.sha256(), 0
            for chunk in self.archive.chunks(name):
                digest.update(chunk)
                crc = zlib.crc32(chunk, crc)
                done += len(chunk)
                self.progress("digests", done, total)
            if digest.hexdigest() != stated:
                raise Malformed("%s is not what was signed" % name)
            if crc != self.archive.files[name][2]:
                raise Malformed("%s has another CRC" % name)
        return "%d files, %d bytes" % (len(self.digests), done), None

    def _time(self):
        ahead = millis(self.as_of["time"]) - self.now
        if ahead > TOLERANCE:
            raise Undecided("it is from the future, by your clock")
        return self.as_of["time"], None

    # -- receipts

    def _receipts(self):
        """Reads every line of receipts.ndjson: its form, its signatures, its chain. Keeps little of each."""
        receipts = []
        total = self.archive.files["receipts.ndjson"][1]
        start = self.archive.files["receipts.ndjson"][0]
        for offset, line in self.archive.lines("receipts.ndjson", MAX_RECEIPT):
            what = "receipt %d" % len(receipts)
            self.progress("receipts", offset - start, total)
            receipts.append(Receipt(line, offset, what, self))
        return "", receipts

    def _receipt_roots(self):
        if len(self.receipts) != self.counts["receipts"]:
            raise Malformed("%d receipts, and the manifest counts %d" % (len(self.receipts), self.counts["receipts"]))
        for receipt in self.receipts:
            if self.walk.roots.get(receipt.size) != receipt.root:
                raise Malformed("the checkpoint of %s has not the root of the entries" % receipt.what)
        if self.no_openssl:
            raise Undecided("their certificates need openssl 3, which is not here")
        detail = "%d, each signed by the log, over a checkpoint of these entries%s" % (len(self.receipts), self._by())
        return detail, self.receipts

    # -- entries

    def _entries(self):
        walk = self.walk = Walk(self)
        walk.go()
        self.walked = True
        genesis = walk.genesis
        if genesis is None:
            raise Malformed("a log begins with its genesis entry")
        if genesis["vkey"] != self.vkey:
            raise Malformed("the genesis entry names another key")
        if (genesis["project"], genesis["name"]) != (self.project["id"], self.project["name"]):
            raise Malformed("the genesis entry names another project")
        return "%d entries, %d left out" % (walk.included, walk.omitted), walk

    def _tree(self):
        if self.walk.root != self.root:
            raise Malformed("entries and hashes do not give the checkpoint's root")
        return "root %s over %d entries" % (to64(self.root), self.size), None

    def _filter(self):
        data = self.archive.content("filter.json", 16 * 1024 * 1024)
        stated = canonical_json(data, "filter.json")
        walk = self.walk
        if (walk.included, walk.omitted) != (self.counts["entries"], self.counts["omitted"]):
            raise Malformed("not as many entries included and left out as the manifest counts")
        right = {
            "v": 1,
            "request": self.request,
            "included": walk.included,
            "omitted": walk.omitted,
            "statement": FILTER_WORDS[self.asked],
        }
        if self.asked == "period":
            if not isinstance(stated, dict) or not list_of(_session, 0, 1 << 30)(stated.get("sessions")):
                raise Malformed("filter.json does not name the sessions")
            right["sessions"] = stated["sessions"]
        if jcs(right) != data:
            raise Malformed("filter.json is not what it has to be")
        if self.asked == "everything" and walk.omitted:
            raise Malformed("everything was asked for, and entries are left out")
        if self.asked == "period":
            before = -1
            for name in stated["sessions"]:
                named = walk.sessions.get(name)
                if named is None or named.began[0] >= self.evaluated or named.began[0] <= before:
                    raise Malformed("session %s is not in its place" % name)
                if not self.request["period"]["from"] <= named.began[1] < self.request["period"]["to"]:
                    raise Malformed("session %s did not begin in the period" % name)
                before = named.began[0]
        return FILTER_WORDS[self.asked], None

    def _issued(self):
        walk = self.walk
        wanted = [(index, said) for index, said in walk.issued if walk.is_wanted(said["scope"])]
        if len(wanted) != len(self.receipts):
            raise Malformed("%d receipts, and the log issued %d" % (len(self.receipts), len(wanted)))
        last = {}
        for receipt, (index, said) in zip(self.receipts, wanted):
            scope = jcs(said["scope"])
            if receipt.digest != said["receipt"]:
                raise Malformed("%s is not the one that entry %d names" % (receipt.what, index))
            if receipt.scope != scope or receipt.size != said["asOf"]:
                raise Malformed("%s is of another scope or size than entry %d says" % (receipt.what, index))
            if index < receipt.size or (receipt.stated is not None and index <= receipt.stated):
                raise Malformed("entry %d comes before what its receipt stands on" % index)
            for stated in (receipt.supersedes, said.get("supersedes")):
                if stated != last.get(scope):
                    raise Malformed("%s does not supersede the one before it" % receipt.what)
            last[scope] = receipt.digest
        return "%d, in the order in which the log issued them" % len(wanted), None

    def _statements(self):
        walk, checked = self.walk, 0
        for index, said in walk.stated:
            if said["type"] == "session":
                if not walk.is_chosen(said["session"]):
                    continue
                key = ("session", said["session"])
            else:
                key = ("epoch", said["sink"], said["epoch"])
                if self.asked != "everything" and key[1:] not in walk.whole:
                    continue
            if said["size"] > index:
                raise Malformed("entry %d states more than stood before it" % index)
            made = walk.made.get(key + (said["size"], said["time"]))
            if made is None:
                raise Malformed("the statement of entry %d could not be made again" % index)
            if made != (said["statement"], said["status"], said["policy"]):
                raise Malformed("the statement of entry %d is not what the entries give" % index)
            checked += 1
        return "%d, made again from the entries" % checked, None

    # -- tables

    def _tables(self):
        walk = self.walk
        keys = walk.keys(self.origin, self.vkey, self.x5c)
        self._same("keys.json", [jcs(keys)])
        self._same("chain.pem", [b"".join(map(pem_of, self.x5c))])
        chosen = walk.chosen()
        if len(chosen) != self.counts["sessions"]:
            raise Malformed("%d sessions, and the manifest counts %d" % (len(chosen), self.counts["sessions"]))
        if self.pages != PAGES:
            held = "events.csv and sessions.csv are of version %d, not %d: not made again, held to their signed digests"
            return "keys.json and chain.pem are made again and the same; " + held % (self.pages, PAGES), None
        if walk.events_fault is not None:
            raise Malformed(walk.events_fault)
        self._same("sessions.csv", self._session_rows(chosen))
        return "keys.json, chain.pem, events.csv and sessions.csv are made again and the same", None

    def _same(self, name, parts):
        compare = Comparison(self.archive, name)
        for part in parts:
            compare.feed(part)
        if not compare.end():
            raise Malformed("%s is not what the entries and receipts give" % name)

    def _session_rows(self, chosen):
        yield csv_row(SESSION_COLUMNS)
        issued = {said["receipt"]: index for index, said in self.walk.issued}
        receipts = {}
        for receipt in self.receipts:
            if receipt.session is not None:
                receipts.setdefault(receipt.session, []).append(receipt)
        for name in chosen:
            named, own = self.walk.sessions.get(name), receipts.get(name, [])
            row = dict(session=name, receipts=len(own), entries=0, later_entries=0)
            if named is not None:
                row.update(began_index=named.began[0], began=named.began[1], last_index=named.last[0], last=named.last[1])
                row.update(entries=len(named.at), later_entries=len(named.at))
            if own:
                receipt = own[-1]
                made = receipt.predicate(self)
                coverage, disposition = made["coverage"], made["disposition"]
                if named is not None:
                    row["later_entries"] = sum(1 for index in named.indexes(self.walk) if index >= coverage["size"])
                row.update(
                    kinds=" ".join(coverage["kinds"]),
                    closed=coverage["closed"],
                    coverage=coverage["status"],
                    disposition=disposition["status"],
                    reasons=" ".join(dict.fromkeys(each["reason"] for each in disposition.get("reasons", ()))),
                    calls=made["calls"],
                    as_of=made["asOf"]["size"],
                    statement_size=coverage["size"],
                    statement_time=coverage["time"],
                    statement=coverage["statement"],
                    receipt=receipt.digest,
                    receipt_index=issued.get(receipt.digest),
                    supersedes=receipt.supersedes,
                )
                row.update(made["authority"]["levels"])
                row.update((status, made["verdicts"][status]) for status in ("PASS", "WARN", "FAIL", "UNVERIFIED"))
            yield csv_row([row.get(column) for column in SESSION_COLUMNS])

    # -- what receipts state

    def _sessions(self):
        own = [receipt for receipt in self.receipts if receipt.session is not None]
        for receipt in own:
            if receipt.fault is not None:
                raise Malformed("%s, for session %s: %s" % (receipt.what, receipt.session, receipt.fault))
            stated = self.walk.statement_entry(receipt.stated)
            if (
                stated is None
                or stated["type"] != "session"
                or (stated["session"], stated["size"], stated["time"])
                != (receipt.session, receipt.covered, receipt.covered_time)
                or stated["statement"] != receipt.statement
            ):
                raise Malformed("%s does not stand on the statement that entry %d has" % (receipt.what, receipt.stated))
        without = set(self.walk.chosen()) - {receipt.session for receipt in own}
        if without:
            raise Undecided("%d of the sessions have no receipt, %s among them" % (len(without), min(without)))
        told, later = "", self.walk.unchosen
        if later:
            what = "first named" if self.asked == "everything" else "that may have begun in the period, first named or judged"
            told = "; not about %d %s from entry %d on, such as %s" % (len(later), what, self.evaluated, next(iter(later)))
        if self.walk.unchosen_receipts:
            issued = self.walk.unchosen_receipts
            told += ", with %d receipt%s not in it" % (issued, "" if issued == 1 else "s")
        return "%d receipts, made again from the entries%s" % (len(own), told), None

    def _periods(self):
        own = [receipt for receipt in self.receipts if receipt.period is not None]
        for receipt in own:
            receipt.finish_period(self.walk, self)
            if receipt.fault is not None:
                raise Malformed("%s, for a period: %s" % (receipt.what, receipt.fault))
        others = sum(1 for receipt in own if receipt.counts_others)
        if others:
            raise Undecided("%d of %d count sessions that are not part of this export" % (others, len(own)))
        return "%d receipts, made again from the entries" % len(own), None


# ---------------------------------------------------------------------------------------------------------------------
# Receipts of sessions and periods (receipt, sections 9 and 10)

SESSION_TYPE = "urn:belay:session-receipt:v1"
PERIOD_TYPE = "urn:belay:period-receipt:v1"
SESSION_NOT_PROVEN_DIGEST = "sha256:b9e3166f38b2dc84c0d066269e1ad193d88f6a564d3dcefd07d5ca632a2977a7"
PERIOD_NOT_PROVEN_DIGEST = "sha256:56ddefa67837a7b9b01cbc64242e1a9aa54217cc5e0c702b8a60f1091634e9f4"
MOST_LISTED = 100
MOST_IN_REASON = 20


def _is_object(value):
    return isinstance(value, dict)


def _is_list(value):
    return isinstance(value, list)


_SESSION_MEMBERS = {
    "v": whole(1, 1),
    "scope": _is_object,
    "log": _is_object,
    "asOf": _is_object,
    "coverage": _is_object,
    "policy": _is_object,
    "authority": _is_object,
    "disposition": _is_object,
    "calls": _int,
    "verdicts": _is_object,
    "issuers": _is_list,
    "evidence": _is_object,
    "notProven": lambda value: digest_of(jcs(value)) == SESSION_NOT_PROVEN_DIGEST,
}
_PERIOD_MEMBERS = {
    "v": whole(1, 1),
    "scope": _is_object,
    "log": _is_object,
    "asOf": _is_object,
    "coverage": _is_object,
    "sessions": _is_object,
    "calls": _int,
    "levels": _is_object,
    "verdicts": _is_object,
    "sinks": _is_list,
    "entries": _is_object,
    "complete": is_bool,
    "notProven": lambda value: digest_of(jcs(value)) == PERIOD_NOT_PROVEN_DIGEST,
}
_COVERAGE_MEMBERS = {
    "index": _int,
    "statement": _sha256,
    "size": _int,
    "time": is_moment,
    "status": one_of(*STATUSES),
    "closed": is_bool,
    "kinds": _is_list,
    "members": _is_list,
}


class Receipt:
    """A receipt whose form, signatures and certificates hold. Of its predicate only what it stands on is kept."""

    def __init__(self, line, offset, what, v):
        self.what, self.offset, self.length = what, offset, len(line)
        self.digest = digest_of(line)
        self.partial = None
        self.counts_others = False
        self.fault = "its statement was not made again"
        envelope = Envelope(line, what)
        self.payload_digest = sha256(envelope.payload)
        value = statement_of(envelope.payload, what)
        made = value["predicate"]
        kind = value["predicateType"]
        tables = {SESSION_TYPE: _SESSION_MEMBERS, PERIOD_TYPE: _PERIOD_MEMBERS}
        if kind not in tables or len(value["subject"]) != 1:
            raise Malformed("%s is no receipt of a session or a period" % what)
        members(made, tables[kind], {"supersedes": _sha256}, what)
        origin, vkey, x5c = read_log(made["log"])
        if origin != v.origin or vkey != v.vkey:
            raise Malformed("%s is of another log" % what)
        if not _is_scope(made["scope"]) or made["scope"]["type"] != ("session" if kind == SESSION_TYPE else "period"):
            raise Malformed("%s has another scope" % what)
        as_of = members(made["asOf"], {"size": _int, "checkpoint": _text, "time": is_moment}, {}, "asOf")
        if envelope.keyid != v.key.id or not v.key.curve.verify(envelope.signed(), envelope.signature):
            raise Malformed("the signature of %s does not verify" % what)
        if v.openssl.path is not None and v.by_openssl < OPENSSL_RECEIPTS:
            v.by_openssl += 1
            if not v.openssl.verifies(v.key, envelope.signed(), envelope.signature):
                raise Malformed("openssl and this file differ on the signature of %s" % what)
        known = v.heads.get(as_of["checkpoint"])
        if known is None:
            known = open_checkpoint(as_of["checkpoint"], v.key, lambda key, text, sig: key.curve.verify(text, sig))
            v.heads[as_of["checkpoint"]] = known
        self.size, self.root = known
        if self.size != as_of["size"] or self.size > v.size:
            raise Malformed("the checkpoint of %s is of another size" % what)
        try:
            fault = v.chains.fault(x5c, v.key, origin, millis(as_of["time"]))
            if fault is not None:
                raise Malformed("%s: %s" % (what, fault))
        except Undecided:
            v.no_openssl = True
        self.scope = jcs(made["scope"])
        self.supersedes = made.get("supersedes")
        self.session = self.period = self.stated = self.statement = self.came_to = None
        covered = made["coverage"]
        if kind == SESSION_TYPE:
            members(covered, _COVERAGE_MEMBERS, {"began": _is_object}, "coverage")
            self.session, self.came_to = made["scope"]["session"], made["disposition"].get("status")
            self.stated, self.statement = covered["index"], covered["statement"]
            if not covered["size"] <= self.stated < self.size:
                raise Malformed("%s does not stand on its statement" % what)
        else:
            members(covered, {"size": _int, "time": is_moment, "policy": _sha256}, {}, "coverage")
            self.period = (made["scope"]["from"], made["scope"]["to"])
            if covered["size"] > self.size:
                raise Malformed("%s looked at more than its checkpoint covers" % what)
        self.covered, self.covered_time = covered["size"], covered["time"]

    def payload(self, v):
        return Envelope(v.archive._read(self.offset, self.length), self.what).payload

    def predicate(self, v):
        return strict_json(self.payload(v))["predicate"]

    def _compare(self, subject, kind, right, v):
        stated = self.predicate(v)
        right = dict(right, v=1, scope=stated["scope"], log=stated["log"], asOf=stated["asOf"], notProven=stated["notProven"])
        if self.supersedes is not None:
            right["supersedes"] = self.supersedes
        whole_ = {"_type": STATEMENT_TYPE, "subject": [subject], "predicateType": kind, "predicate": right}
        if sha256(jcs(whole_)) == self.payload_digest:
            self.fault = None
            return
        wrong = [name for name in right if jcs(right[name]) != jcs(stated.get(name))]
        self.fault = "%s is not what the entries give" % (", ".join(wrong) or "its subject")

    def compare_session(self, facts, v):
        statement = facts["statement"]
        coverage = {
            "index": self.stated,
            "statement": digest_of(jcs(statement)),
            "size": statement["asOf"]["size"],
            "time": statement["asOf"]["time"],
            "status": statement["status"],
            "closed": statement["closed"],
            "kinds": statement["kinds"],
            "members": [_listed(member) for member in statement["members"]],
        }
        if "began" in statement:
            coverage["began"] = statement["began"]
        levels, recorders = facts["levels"], facts["recorders"]
        authority = {"levels": levels}
        if any(levels.values()):
            authority["lowest"] = next(level for level in LEVELS if levels[level])
        if any(recorders.values()):
            authority["recorder"] = {name.replace(" ", "_"): count for name, count in recorders.items()}
        right = {
            "coverage": coverage,
            "policy": facts["policy"],
            "authority": authority,
            "disposition": _claimed(facts["disposition"], facts["calls"]),
            "calls": facts["calls"],
            "verdicts": listed_verdicts(facts["verdicts"]),
            "issuers": facts["issuers"],
            "evidence": {"entries": facts["evidence"]["entries"]},
        }
        subject = {
            "name": "%s#session/%s" % (v.origin, self.session),
            "digest": {"sha256": facts["evidence"]["digest"]},
        }
        self._compare(subject, SESSION_TYPE, right, v)

    def compare_period(self, walk, v):
        """The part that follows from the entries that were looked at; the receipts counted may have come later."""
        log, (begin, end) = walk.log, self.period
        policy = log.policy_at(log.size)[0]
        names = []
        for name in sorted(log.sessions):
            began = log.began(name) or log.sessions[name].story
            if begin <= began[1] < end:
                names.append(name)
        sinks = []
        for sink in sorted(set(log.chains) | set(log.declared)):
            made = _sink_in_period(log, sink, begin, end, self.covered_time, policy)
            if made is not None:
                sinks.append(made)
        first, upto = walk.received_before(begin, self.covered), walk.received_before(end, self.covered)
        self.partial = names, {
            "coverage": {"size": self.covered, "time": self.covered_time, "policy": log.policy_digest(policy)},
            "sinks": sinks,
            "entries": {"first": first, "count": upto - first},
            "complete": end <= self.covered_time and bool(sinks) and all(sink["status"] == "complete" for sink in sinks),
        }

    def finish_period(self, walk, v):
        if self.partial is None:
            return
        names, right = self.partial
        if not all(map(walk.is_chosen, names)):
            self.counts_others, self.fault = True, None
            return
        by_digest = {receipt.digest: receipt for receipt in v.receipts}
        last = {}
        for index, said in walk.issued:
            if index < self.size and said["scope"]["type"] == "session":
                last[said["scope"]["session"]] = said["receipt"]
        dispositions = dict.fromkeys(DISPOSITIONS, 0)
        levels = dict.fromkeys(LEVELS, 0)
        verdicts = {"PASS": 0, "WARN": 0, "FAIL": 0, "UNVERIFIED": 0, "causes": {}, "otherCauses": 0}
        calls = unissued = 0
        digest = hashlib.sha256()
        for name in names:
            digest.update(("%s %s\n" % (name, last.get(name, "-"))).encode())
            if name not in last:
                unissued += 1
                continue
            if last[name] not in by_digest:
                self.fault = "the receipt of session %s is not here" % name
                return
            made = by_digest[last[name]].predicate(v)
            dispositions[made["disposition"]["status"]] += 1
            calls += made["calls"]
            for level in LEVELS:
                levels[level] += made["authority"]["levels"][level]
            for status in ("PASS", "WARN", "FAIL", "UNVERIFIED"):
                verdicts[status] += made["verdicts"][status]
            for cause, count in made["verdicts"]["causes"].items():
                verdicts["causes"][cause] = verdicts["causes"].get(cause, 0) + count
            verdicts["otherCauses"] += made["verdicts"].get("otherCauses", 0)
        right = dict(
            right,
            sessions={"count": len(names), "dispositions": dispositions, "unissued": unissued},
            calls=calls,
            levels=levels,
            verdicts=listed_verdicts(verdicts),
        )
        subject = {
            "name": "%s#period/%s/%s" % (v.origin, self.period[0], self.period[1]),
            "digest": {"sha256": digest.hexdigest()},
        }
        self._compare(subject, PERIOD_TYPE, right, v)


DISPOSITIONS = ("contested", "violated", "incomplete", "open", "unverified", "affirmed")


def _sink_in_period(log, sink, begin, end, time, policy):
    """What a period has of a sink, or None for one that is not required and has nothing there."""
    declared = [said for index, said in log.declared.get(sink, ()) if index < log.size and log.declared_when[index] < end]
    required = bool(declared) and declared[-1].get("required", False)
    chain = log.chains.get(sink)
    counts = dict.fromkeys(STATUSES, 0)
    found = {"lost": [], "branches": [], "miscounted": []}
    ours, places = set(), []
    if chain is not None:
        found = chain.findings()
        for epoch in chain.links:
            made = log.epoch_statement(sink, epoch, time, policy)
            if "first" not in made:
                continue
            places.append((epoch, made["first"], made["last"]))
            if made["first"]["received"] < end and made["last"]["received"] >= begin:
                counts[made["status"]] += 1
                ours.add(epoch)
    places.sort(key=lambda place: place[1]["index"])
    at = {epoch: i for i, (epoch, _, _) in enumerate(places)}
    lost = 0
    for each in found["lost"]:
        i = at.get(each["before"])
        late = i is None or places[i][1]["received"] >= begin
        lost += late and (not i or places[i - 1][2]["received"] < end)
    twisted = sum(1 for each in found["branches"] if ours & set(each["epochs"]))
    twisted += sum(1 for each in found["miscounted"] if each["epoch"] in ours)
    if not required and not ours and not lost:
        return None
    statuses = [status for status in STATUSES if counts[status]]
    if lost or not statuses:
        statuses.append("silent")
    if twisted:
        statuses.append("conflict")
    return {
        "sink": sink,
        "required": required,
        "status": worst(statuses),
        "epochs": counts,
        "lost": lost,
        "twisted": twisted,
    }


def _listed(member):
    epochs, reasons = member["epochs"], member["reasons"]
    return dict(
        member,
        epochs=epochs[:MOST_LISTED],
        epochsOmitted=max(0, len(epochs) - MOST_LISTED),
        reasons=reasons[:MOST_LISTED],
        reasonsOmitted=max(0, len(reasons) - MOST_LISTED),
    )


def _claimed(disposition, calls):
    if disposition["status"] == "affirmed":
        return {
            "status": "affirmed",
            "members": len(disposition["members"]),
            "calls": calls,
            "warnings": disposition["warnings"],
        }
    reasons = disposition["reasons"]
    return {
        "status": disposition["status"],
        "reasons": [_cut(reason) for reason in reasons[:MOST_LISTED]],
        "reasonsOmitted": max(0, len(reasons) - MOST_LISTED),
    }


def _cut(reason):
    if reason["reason"] == "coverage":
        return {key: value for key, value in reason.items() if key != "because"}
    cut, omitted = dict(reason), {}
    for name in ("calls", "because", "verdicts", "labels"):
        if len(reason.get(name, ())) > MOST_IN_REASON:
            cut[name] = reason[name][:MOST_IN_REASON]
            omitted[name] = len(reason[name]) - MOST_IN_REASON
    if omitted:
        cut["omitted"] = omitted
    return cut


def listed_verdicts(verdicts):
    """At most 100 causes, those named most; the verdicts with any other are counted."""
    causes = sorted(verdicts["causes"].items(), key=lambda each: (-each[1], each[0]))
    listed = {status: verdicts[status] for status in ("PASS", "WARN", "FAIL", "UNVERIFIED")}
    listed["causes"] = dict(causes[:MOST_LISTED])
    others = sum(count for _, count in causes[MOST_LISTED:]) + verdicts.get("otherCauses", 0)
    if others:
        listed["otherCauses"] = others
    return listed


# ---------------------------------------------------------------------------------------------------------------------
# Tables (export, section 8)

EVENT_COLUMNS = (
    "index received late conflict role signed sink token epoch seq kind time session call match digest"
    " tool tooldef bytes ok error ms state phase status cause mode leaf"
).split()
SESSION_COLUMNS = (
    "session began_index began last_index last entries later_entries kinds closed coverage disposition reasons calls"
    " asserted observed corroborated replayed adjudicated PASS WARN FAIL UNVERIFIED as_of statement_size statement_time"
    " statement receipt receipt_index supersedes receipts"
).split()
_ATTR_COLUMNS = ("tool", "tooldef", "bytes", "ok", "error", "ms", "state", "phase", "status", "cause", "mode")


def csv_field(value):
    if value is None:
        return ""
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        return ""
    if value[:1] in ("=", "+", "-", "@", "\t", "\r") and value and re.fullmatch(r"-?[0-9]+", value) is None:
        value = "'" + value
    if any(c in value for c in ',"\r\n'):
        return '"%s"' % value.replace('"', '""')
    return value


def csv_row(fields):
    return (",".join(map(csv_field, fields)) + "\r\n").encode("utf-8")


def event_row(entry):
    said, leaf = entry.said, entry.leaf.hex()
    head = [entry.index, entry.received, True if entry.late else None, entry.conflict, entry.role, entry.signed]
    if entry.sent:
        attrs = entry.attrs
        error = attrs.get("error")
        if error is not None and attrs.get("error_negative") is True:
            error = "-%d" % error
        get = said.get
        body = [entry.sink, entry.token, get("epoch"), get("seq"), get("kind"), get("time"), get("session"), get("call"), get("match"), get("digest")]
        own = [error if column == "error" else attrs.get(column) for column in _ATTR_COLUMNS]
        return csv_row(head + body + own + [leaf])

    def word(value):
        return value if isinstance(value, str) or type(value) is int else None

    scope = said.get("scope") if isinstance(said.get("scope"), dict) else {}
    session = word(said.get("session"))
    digest = word(said.get("statement"))
    body = [word(said.get(name)) for name in ("sink", "token", "epoch", "seq", "kind", "time")]
    body += [word(scope.get("session")) if session is None else session, word(said.get("call")), word(said.get("match"))]
    body += [word(said.get("receipt")) if digest is None else digest]
    own = [word(said.get("status")) if column == "status" else None for column in _ATTR_COLUMNS]
    return csv_row(head + body + own + [leaf])


class Comparison:
    """Compares a file of the archive with what is made, part by part."""

    def __init__(self, archive, name):
        self._chunks = archive.chunks(name)
        self._rest = b""
        self.same = True

    def feed(self, part):
        if not self.same:
            return
        while len(self._rest) < len(part):
            more = next(self._chunks, None)
            if more is None:
                self.same = False
                return
            self._rest += more
        self.same = self._rest.startswith(part)
        self._rest = self._rest[len(part) :]

    def end(self):
        return self.same and not self._rest and next(self._chunks, None) is None


# ---------------------------------------------------------------------------------------------------------------------
# One pass over entries.ndjson (export, sections 4 to 7)


class Named:
    """A chosen session, as entries name it."""

    def __init__(self, began):
        self.began = self.last = began
        self.at = array("Q")  # places in the walk's index of entries

    def indexes(self, walk):
        return (walk.indexes[place] for place in self.at)


class Walk:
    """
    Reads the entries once, in their order. What statements and receipts say as of a size is made when the walk stands
    there. Kept of an entry are its index and its offset; what is needed again is read again.
    """

    def __init__(self, verification):
        self.v = verification
        self.archive = verification.archive
        self.log = Log(verification.origin)
        self.indexes, self.offsets = array("Q"), array("Q")
        self.included = self.omitted = 0
        self.roots = {0: EMPTY_ROOT}
        self.root = None
        self.sessions = {}  # chosen ones that an entry names, in the order of these entries
        self.whole = set()  # epochs in which a chosen session is named
        # Sessions that were first named after they were looked for; of an export of a period that went on then: who is
        # not chosen and was first named in the rest of it, or first judged after.
        self.unchosen = {}
        self._went_on = False
        self._named = set()
        self._period = verification.request.get("period")
        self.unchosen_receipts = 0
        self.issued, self.stated = [], []
        self.made = {}
        self.events = Comparison(self.archive, "events.csv")
        self.events_fault = None
        self._sinks, self._tokens, self._auditors, self._policies = [], [], [], []
        self.genesis = None
        self._cache = {}
        self._file = verification.archive.file
        self._evaluated = False
        self._names = None
        if verification.asked == "sessions":
            self._names = set(verification.request["sessions"])
        elif verification.asked == "period":
            stated = canonical_json(self.archive.content("filter.json", 16 * 1024 * 1024), "filter.json")
            names = stated.get("sessions") if isinstance(stated, dict) else None
            if not list_of(_session, 0, 1 << 30)(names):
                raise Malformed("filter.json does not name the sessions")
            self._names = set(names)

    def is_chosen(self, name):
        return name in self.sessions if self._names is None else name in self._names

    def is_wanted(self, scope):
        if scope["type"] == "session":
            return self.is_chosen(scope["session"])
        return scope["type"] == "period" and self._names is None

    def _begin(self):
        """As of E: with which entry each session began."""
        self._evaluated = True
        for name, named in self.sessions.items():
            named.began = self.log.began(name) or self.log.sessions[name].story

    def chosen(self):
        """Names in the order of sessions.csv."""
        began = sorted(self.sessions, key=lambda name: self.sessions[name].began[0])
        return began + sorted(set() if self._names is None else self._names - set(self.sessions))

    def _plan(self):
        """What has to be made as of which size: {size: {(type, who..., time)}}. Only looks; what it finds is read strictly later."""
        plan = {}
        for _, line in self.archive.lines("entries.ndjson", MAX_LINE):
            if b'"kind":"coverage.stated"' not in line:
                continue
            try:
                said = strict_json(line)
                size, time = said["size"], said["time"]
                who = (said["session"],) if said["type"] == "session" else (said["sink"], said["epoch"])
                if _int(size) and size <= self.v.size and is_moment(time) and all(map(_text, who)):
                    if said["type"] == "epoch" or self._names is None or said["session"] in self._names:
                        plan.setdefault(size, set()).add((said["type"],) + who + (time,))
            except (Malformed, KeyError, TypeError):
                continue
        for receipt in self.v.receipts:
            if receipt.session is not None:
                plan.setdefault(receipt.covered, set()).add(("session", receipt.session, receipt.covered_time))
            elif receipt.period is not None:
                plan.setdefault(receipt.covered, set()).add(("period",) + receipt.period + (receipt.covered_time,))
        self._by_statement = {}
        for receipt in self.v.receipts:
            who = ("session", receipt.session) if receipt.session is not None else ("period",) + receipt.period
            self._by_statement.setdefault(who + (receipt.covered, receipt.covered_time), []).append(receipt)
        return plan

    def go(self):
        v = self.v
        plan = self._plan()
        sizes = sorted(plan)
        due = 0
        heads = {receipt.size for receipt in v.receipts}
        stack, n, received = [], 0, ""
        start, total = self.archive.files["entries.ndjson"][:2]
        lines = self.archive.lines("entries.ndjson", MAX_LINE)
        was_omitted = False
        self.events.feed(csv_row(EVENT_COLUMNS))
        for offset, line in lines:
            v.progress("entries", offset - start, total)
            if line.startswith(b'{"hashes":'):
                n = self._omitted(line, n, stack, was_omitted and n not in heads, heads)
                was_omitted = True
                continue
            was_omitted = False
            _, body = next(lines, (0, None))
            if body is None:
                raise Malformed("entry %d has no second line" % n)
            if n >= v.size:
                raise Malformed("more entries than the checkpoint covers")
            if n >= v.evaluated and not self._evaluated:
                self._begin()
            while due < len(sizes) and sizes[due] <= n:
                self._make(sizes[due], plan[sizes[due]])
                due += 1
            try:
                entry = parse_entry(line, body, v.origin)
            except Malformed as error:
                raise Malformed("entry %d: %s" % (n, error)) from None
            if entry.index != n:
                raise Malformed("entry %d says that it is %d" % (n, entry.index))
            if entry.received < received:
                raise Malformed("entry %d was received before the one before it" % n)
            if entry.conflict is not None and entry.conflict >= n:
                raise Malformed("entry %d conflicts with one that is not before it" % n)
            received = entry.received
            push(stack, n, 0, entry.leaf)
            n += 1
            self.indexes.append(entry.index)
            self.offsets.append(offset)
            self.included += 1
            if n in heads:
                self.roots[n] = fold(stack)
            self.events.feed(event_row(entry))
            self._take(entry)
        if n != v.size:
            raise Malformed("entries end at %d, and the checkpoint covers %d" % (n, v.size))
        while due < len(sizes):
            if sizes[due] <= n:
                self._make(sizes[due], plan[sizes[due]])
            due += 1
        if not self._evaluated:
            self._begin()
        self.root = fold(stack)
        self.roots[n] = self.root
        if not self.events.end():
            self.events_fault = "events.csv is not what the entries give"

    def _omitted(self, line, n, stack, touches, heads):
        stated = canonical_json(line, "an omitted line")
        members(stated, {"hashes": list_of(_hash, 1, 128), "omitted": lambda v: isinstance(v, dict)}, {}, "an omitted line")
        span = members(stated["omitted"], {"from": _int, "to": _int}, {}, "omitted")
        begin, end = span["from"], span["to"]
        if touches:
            raise Malformed("two omitted lines follow each other at %d" % n)
        if begin != n or not begin < end <= self.v.size:
            raise Malformed("an omitted line at %d is about other entries" % n)
        if any(begin < size < end for size in heads):
            raise Malformed("a checkpoint of a receipt lies inside an omitted span")
        nodes = decompose(begin, end)
        if len(nodes) != len(stated["hashes"]):
            raise Malformed("an omitted line has not as many hashes as its span")
        for (start, level), digest in zip(nodes, stated["hashes"]):
            push(stack, start, level, b64(digest, "a hash", 32))
        self.omitted += end - begin
        if end in heads:
            self.roots[end] = fold(stack)
        return end

    def _take(self, entry):
        v, said, index = self.v, entry.said, entry.index
        if (entry.kind == "log.genesis") != (index == 0):
            raise Malformed("a log begins with its genesis entry, and has one")
        self.log.apply(entry)
        if self._period is not None and index >= v.evaluated and entry.received < self._period["to"]:
            self._went_on = True
        if entry.sent:
            name = said.get("session")
            if name is None:
                return
            named = self.sessions.get(name)
            if named is None:
                if self._names is None and index >= v.evaluated:
                    self.unchosen[name] = True
                    return
                if self._names is not None and name not in self._names:
                    if name not in self._named and index >= v.evaluated and self._is_beside(name, entry):
                        if entry.received < self._period["to"]:
                            self.unchosen[name] = True
                    self._named.add(name)
                    return
                named = self.sessions[name] = Named((index, entry.received))
            named.last = (index, entry.received)
            named.at.append(len(self.indexes) - 1)
            self.whole.add((entry.sink, said["epoch"]))
            return
        kind = entry.kind
        if kind == "log.genesis":
            self.genesis = said
        if kind in ("log.genesis", "policy.set"):
            policy = said["policy"]
            if isinstance(policy, str):
                self._policies.append({"index": index, "digest": policy})
            else:
                read = read_policy(policy)
                if read is not None:
                    self._policies.append({"index": index, "digest": digest_of(jcs(read))})
        elif kind == "sink.declared":
            sink = {"index": index, "sink": said["sink"], "required": said.get("required", False)}
            for mine, theirs in (("kind", "sinkKind"), ("domain", "domain"), ("key", "key"), ("fingerprint", "fingerprint"), ("heartbeat", "heartbeat")):
                if theirs in said:
                    sink[mine] = said[theirs]
            self._sinks.append(sink)
        elif kind == "token.issued":
            token = {"token": said["token"], "role": said["role"], "issuedBy": said["by"], "index": index}
            token.update((name, said[name]) for name in ("sinks", "domain", "expires") if name in said)
            self._tokens.append(token)
        elif kind == "auditor.issued":
            self._auditors.append({"auditor": said["auditor"], "issuedBy": said["by"], "index": index})
        elif kind in ("token.revoked", "auditor.revoked"):
            name = kind.split(".")[0]
            for each in self._tokens if name == "token" else self._auditors:
                if each[name] == said[name]:
                    each.setdefault("revoked", index)
        elif kind == "coverage.stated":
            self.stated.append((index, said))
        elif kind == "receipt.issued":
            self.issued.append((index, said))
            if said["scope"]["type"] == "session":
                name = said["scope"]["session"]
                # A session that was judged before had begun before, and was found or is of another period.
                if "supersedes" not in said and self._went_on and self._is_beside(name, entry):
                    self.unchosen[name] = True
                if name in self.unchosen:
                    self.unchosen_receipts += 1

    def _is_beside(self, name, entry):
        """Of an export of a period: whether who is spoken of is not chosen, and that was after the period began."""
        return self._period is not None and name not in self._names and entry.received >= self._period["from"]

    def keys(self, origin, vkey, x5c):
        log = {"origin": origin, "vkey": vkey}
        if self.genesis is not None:
            log["ackKey"] = self.genesis["ackKey"]
        return {
            "v": 1,
            "log": log,
            "certificates": [digest_of(der) for der in x5c],
            "sinks": self._sinks,
            "tokens": self._tokens,
            "auditors": self._auditors,
            "policies": self._policies,
        }

    def statement_entry(self, index):
        """The `coverage.stated` of the entry at an index, or None."""
        place = bisect.bisect_left(self.stated, (index,))
        return self.stated[place][1] if place < len(self.stated) and self.stated[place][0] == index else None

    # -- what is made at a size

    def entry_at(self, index):
        """An entry that the walk has passed, or None."""
        found = self._cache.get(index)
        if found is None:
            place = bisect.bisect_left(self.indexes, index)
            if place == len(self.indexes) or self.indexes[place] != index:
                return None
            found = self._read(place)
            if len(self._cache) >= 4096:
                self._cache.clear()
            self._cache[index] = found
        return found

    def received_before(self, time, size):
        """How many of the first `size` entries, all of which are here, were received before a time."""
        low, high = 0, size
        while low < high:
            middle = (low + high) // 2
            entry = self.entry_at(middle)
            if entry is None:
                raise Malformed("entry %d, which a receipt of a period looked at, is left out" % middle)
            low, high = (middle + 1, high) if entry.received < time else (low, middle)
        return low

    def _read(self, place):
        self._file.seek(self.offsets[place])
        data = self._file.read(1024 + 4096 + 2)
        return known_entry(*data.split(b"\n", 2)[:2])

    def _entries_of(self, name):
        named = self.sessions.get(name)
        if named is None:
            return []
        found = [self._read(place) for place in named.at]
        self._cache.clear()
        if len(found) <= 4096:
            self._cache.update((entry.index, entry) for entry in found)
        return found

    def _make(self, size, asks):
        self.log.size = size
        for ask in sorted(asks):
            kind, time = ask[0], ask[-1]
            key = ask[:-1] + (size, time)
            if kind == "epoch":
                made = self.log.epoch_statement(ask[1], ask[2], time)
            elif kind == "session":
                facts = derive_session(self.log, ask[1], time, self._entries_of(ask[1]), self.entry_at)
                made = facts["statement"]
                for receipt in self._by_statement.get(key, ()):
                    receipt.compare_session(facts, self.v)
            else:
                for receipt in self._by_statement.get(key, ()):
                    receipt.compare_period(self, self.v)
                continue
            self.made[key] = (digest_of(jcs(made)), made["status"], made["policy"])


# ---------------------------------------------------------------------------------------------------------------------


def read_key(given):
    """A verifier key: itself, or `@` and the name of a file that has it."""
    text = given
    if given.startswith("@"):
        with open(given[1:], "rb") as file:
            text = file.read(4096).decode("utf-8", "replace").strip()
    try:
        return Key(text).text
    except Malformed as error:
        what = "a key looks like NAME+8 hex digits+base64 in one line, and its digits fit the rest; for a file: --key @FILE"
        raise Malformed("%s: %s" % (error, what)) from None


def read_root(path):
    """DER of the one certificate of a PEM file."""
    with open(path, "rb") as file:
        text = file.read(1 << 20)
    found = re.findall(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", text, re.S)
    if len(found) != 1:
        raise Malformed("%s is not one certificate in PEM" % path)
    try:
        return base64.b64decode(b"".join(found[0].split()), validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("%s is not one certificate in PEM" % path) from None


class Usage(argparse.ArgumentParser):
    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(64, "%s: %s\n" % (self.prog, message))


def main():
    usage = Usage(prog="verify.py", description="Checks an export of a Belay log, offline.")
    usage.add_argument("export", metavar="EXPORT.zip")
    usage.add_argument("--key", metavar="VKEY", help="the log's verifier key, as you know it, or @FILE")
    usage.add_argument("--root", metavar="ROOT.pem", help="the root certificate, as you know it; with --origin")
    usage.add_argument("--origin", metavar="ORIGIN", help="the log that you expect")
    usage.add_argument("--json", action="store_true", help="one JSON object on standard output")
    usage.add_argument("--quiet", action="store_true", help="the verdict only")
    given = usage.parse_args()
    if given.root is not None and given.origin is None:
        usage.error("--root vouches for many logs: say with --origin which one you expect")
    try:
        key = None if given.key is None else read_key(given.key)
        root = None if given.root is None else read_root(given.root)
        if os.path.isdir(given.export):
            raise Malformed("%s is a folder: give the zip as it came, not unpacked" % given.export)
        if not os.path.exists(given.export):
            raise Malformed("no such file: %s" % given.export)
        if not os.path.isfile(given.export):
            raise Malformed("%s is not a file" % given.export)
        progress = Progress(given.quiet or given.json)
        made = Verification(given.export, key, root, given.origin, int(clock.time() * 1000), progress)
    except (Malformed, OSError) as error:
        usage.exit(65, "%s: %s\n" % (usage.prog, error))
    verdict, checks = made.verify()
    if given.json:
        print(json.dumps({"verdict": verdict, "checks": [dict(zip(("name", "status", "detail"), each)) for each in checks]}))
    else:
        if not given.quiet:
            missed = [name for name, _, detail in checks if detail == NOT_REACHED]
            for name, status, detail in checks:
                if len(missed) < 2 or detail != NOT_REACHED:
                    print("%-10s  %-9s  %s" % (name, status, detail))
            if len(missed) > 1:
                print("%-10s  %-9s  %s: %s" % ("%d more" % len(missed), "undecided", NOT_REACHED, ", ".join(missed)))
            said = made.summary()
            if said:
                print()
            for name, text in said:
                print("%-10s  %s" % (name, text))
        print(verdict)
    return {"VALID": 0, "INVALID": 1, "INDETERMINATE": 2}[verdict]


if __name__ == "__main__":
    sys.exit(main())
