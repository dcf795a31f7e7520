"""Asks infra/verifier/verify.py: for each line of JSON, an export or a log, one line of JSON with its answer."""

import base64
import importlib.util
import json
import sys

spec = importlib.util.spec_from_file_location("verify", sys.argv[1])
verify = importlib.util.module_from_spec(spec)
spec.loader.exec_module(verify)


def answers(question):
    log = verify.Log(question["log"])
    entries = []
    given = [base64.b64decode(entry) for entry in question["entries"]]
    for ask in question["asks"]:
        for raw in given[len(entries) : ask["size"]]:
            line, _, body = raw.partition(b"\n")
            entry = verify.parse_entry(line, body, question["log"])
            entries.append(entry)
            log.apply(entry)
        time = ask["time"]
        hidden = set(ask.get("hidden", ()))
        at = lambda index: None if index in hidden else entries[index]
        sessions = {}
        for name in log.sessions:
            own = [e for e in entries if e.sent and e.said.get("session") == name]
            sessions[name] = verify.derive_session(log, name, time, own, at)
        yield {
            "epochs": [log.epoch_statement(sink, epoch, time) for sink, epoch in log.epochs],
            "sinks": [log.sink_statement(sink, time) for sink in log.chains],
            "sessions": sessions,
        }


def verdict(question):
    made = verify.Verification(
        question["export"], question.get("key"), None, question.get("origin"), question["now"], verify.Progress(True)
    )
    found, checks = made.verify()
    return {"verdict": found, "checks": checks}


for line in sys.stdin:
    question = json.loads(line)
    if "export" in question:
        print(json.dumps(verdict(question)), flush=True)
        continue
    print(json.dumps([verify.jcs(answer).decode() for answer in answers(question)]), flush=True)
