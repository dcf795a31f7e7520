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


class Few(verify.OpenSSL):
    """Starts openssl for the first signatures and once for each chain: a process each would take most of the time."""

    left = 30

    def verifies(self, key, message, signature):
        self.left -= 1
        return super().verifies(key, message, signature) if self.left > 0 else key.curve.verify(message, signature)

    def close(self):
        pass


few = Few()
chains = verify.Chains(few)


def verdict(question):
    root = None
    if "rootPem" in question:
        root = verify.read_root(few.file("root.pem", question["rootPem"].encode()))
    made = verify.Verification(
        question["export"], question.get("key"), root, question.get("origin"), question["now"], verify.Progress(True)
    )
    made.openssl.close()
    made.openssl, made.chains = few, chains
    found, checks = made.verify()
    return {"verdict": found, "checks": checks}


def reads(raw, log):
    line, lf, body = raw.partition(b"\n")
    try:
        if not lf or b"\n" in body:
            raise verify.Malformed("not two lines")
        verify.parse_entry(line, body, log)
        return None
    except verify.Malformed as error:
        return str(error)


for line in sys.stdin:
    question = json.loads(line)
    if "reads" in question:
        print(json.dumps([reads(base64.b64decode(each), question["log"]) for each in question["reads"]]), flush=True)
        continue
    if "export" in question:
        print(json.dumps(verdict(question)), flush=True)
        continue
    print(json.dumps([verify.jcs(answer).decode() for answer in answers(question)]), flush=True)
verify.OpenSSL.close(few)
