#!/usr/bin/env python3
"""Checks an export of a Belay log, offline, with nothing of Belay installed.

    python3 verify.py EXPORT.zip --key 'ORIGIN+ID+KEY'
    python3 verify.py EXPORT.zip --root ROOT.pem --origin ORIGIN
    python3 verify.py RECEIPT  ...                     a receipt of a session or a period by itself

Needs Python 3.9 or later, its standard library, and the `openssl` command (3.0 or later). One file: copy it anywhere.
KEY and ROOT.pem are yours: had from whoever keeps the log by another way than the export itself. Without either, every
check is made all the same, and the answer is INDETERMINATE, since anyone can make a log of their own.

It is a second implementation. It shares no code with the service and is written from the pages that say what the bytes
mean: libs/envelope/FORMAT.md, libs/note/FORMAT.md, libs/coverage/FORMAT.md, libs/receipt/FORMAT.md, libs/export/FORMAT.md.
Section numbers in the comments below are theirs.

Prints each check by name with ok, failed or undecided, then VALID, INVALID or INDETERMINATE.
Exit code: 0 valid, 1 invalid, 2 indeterminate, 64 wrong usage.
"""

import argparse
import base64
import bisect
import binascii
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


def _parts(text):
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
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
    return _parts(value) is not None


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
    "received": lambda value: millis(value) is not None,
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
        "period": {"from": _is_time, "to": _is_time},
    }.get(value.get("type") if isinstance(value.get("type"), str) else "")
    return rules is not None and set(value) == set(rules) | {"type"} and all(rules[key](value[key]) for key in rules)


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
            "type": one_of("session", "epoch", "sink"),
            "statement": _sha256,
            "size": _int,
            "time": lambda value: millis(value) is not None,
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
            whom = {"session": {"session"}, "epoch": {"sink", "epoch"}, "sink": {"sink"}}[said["type"]]
            if whom != {"session", "sink", "epoch"} & set(said):
                raise Malformed("coverage.stated does not say of what")
    else:
        if entry.sink is None or entry.token is None:
            raise Malformed("a sender's entry without sink or token")
        said = parse_envelope(body)
        if said["log"] != head["log"] or said["sink"] != entry.sink:
            raise Malformed("the two lines of an entry are of different logs or sinks")
    entry.said = said
    entry.kind = said["kind"]
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
                self._conflict("root", min(self.matched, size) + 1, size + 1, index, computed)
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

    def apply(self, entry):
        if entry.conflict is not None:
            return
        said = entry.said
        link = self.links.get(said["epoch"])
        if link is None:
            link = self.links[said["epoch"]] = {
                "epoch": said["epoch"],
                "first": entry.index,
                "opened": None,
                "signed": False,
                "spoke": False,
                "counter": None,
                "previous": None,
                "size": None,
                "root": None,
            }
        if entry.kind != "epoch.open" or said["seq"] != 1:
            link["spoke"] = True
            return
        if link["opened"] is not None:
            return
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

    def findings(self):
        links = list(self.links.values())
        opened = [link for link in links if link["opened"] is not None]
        beginnings = [link["epoch"] for link in opened if link["previous"] is None]
        lost, miscounted = [], []
        for link in opened:
            counter, previous = link["counter"], link["previous"]
            before = None if previous is None else self.links.get(previous)
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
            below = [each["counter"] for each in links if each["counter"] is not None and each["counter"] < (counter or 0)]
            begin = max(below, default=-1) + 1
            if len(beginnings) <= 1 and counter is not None and begin < counter:
                hole["counters"] = {"from": begin, "to": counter}
            lost.append(hole)
        branches = []
        for previous, naming in self.next.items():
            spoken = [link for link in links if link["spoke"] and link["epoch"] in naming]
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
        self.began = {}  # sink -> (index, received)

    def apply(self, entry):
        sink, said = entry.sink, entry.said
        seq, epoch = said["seq"], said["epoch"]
        if entry.conflict is not None:
            self.stories.setdefault(sink, {"epoch": epoch, "from": seq, "to": seq + 1, "index": entry.index})
            return
        self.began.setdefault(sink, (entry.index, entry.received))
        extent = self.extents.setdefault((sink, epoch), {"first": seq, "last": seq, "opened": None, "closed": None})
        extent["first"] = min(extent["first"], seq)
        extent["last"] = max(extent["last"], seq)
        if entry.kind == "session.open":
            extent["opened"] = seq if extent["opened"] is None else min(extent["opened"], seq)
            if entry.role != "agent":
                self.openers.add((sink, entry.signed is not None))
        if entry.kind == "session.close":
            extent["closed"] = seq if extent["closed"] is None else max(extent["closed"], seq)


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
        self.order = []  # sinks in the order of their first declaration
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
        chain.apply(entry)
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
        found = self.epochs[(sink, epoch)].findings(self.chains[sink].account(epoch))
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
        found = chain.findings()
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

    def began_at(self, name):
        """Index of the entry by which a session's rules are chosen."""
        began = self.sessions[name].began if name in self.sessions else {}
        declared = [index for sink, (index, _) in began.items() if self.declaration(sink, index) is not None]
        return min(declared or [index for index, _ in began.values()], default=self.size)

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
        began = min((began for sink, began in session.began.items() if sink in names), default=None)
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
        chain = self.chains[sink].findings()
        goes_on = {epoch for epoch, extent, _ in parts if extent["opened"] is None or extent["opened"] != extent["first"]}
        _, last, last_found = parts[-1]
        for lost in chain["lost"]:
            after = last["closed"] is None and lost["index"] > last_found["last"]["index"]
            if lost["before"] in goes_on or after:
                statuses.append("silent")
                reasons.append({"reason": "lost_epoch", "lost": lost})
        ours = {epoch for epoch, _, _ in parts}
        twisted = [each for each in chain["branches"] if ours & set(each["epochs"])]
        twisted += [each for each in chain["miscounted"] if each["epoch"] in ours]
        for each in twisted:
            statuses.append("conflict")
            reasons.append({"reason": "chain", "index": each["index"]})
        return {
            "sink": sink,
            "required": required,
            "status": worst(statuses),
            "closed": "ending" in last_found or (last["closed"] is not None and last["closed"] == last["last"]),
            "signed": all("sender" not in found["unknown"] for _, _, found in parts),
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
        self.labels = [(index, said) for index, said in log.labels.get(session, ()) if index < log.size]
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

    def replay_fault(self, verdict, call):
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
        if named is None or named != ended.said.get("call") or named not in call["calls"]:
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
        held, reasons = [], []
        for verdict in self.verdicts:
            about = verdict.attrs.get("call_index")
            if about not in own:
                continue
            fault = self.replay_fault(verdict, call)
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
                    or entry.said.get("call") not in call["calls"]
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
