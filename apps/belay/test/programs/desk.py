"""desk.py FOLDER: an MCP server in Python: SQLite with an open handle, a watched folder, and a test suite that is run."""

import json
import os
import sqlite3
import subprocess
import sys

folder = sys.argv[1]
database = None
seen = {}


def connect():
    global database
    if database is None:
        database = sqlite3.connect(os.path.join(folder, "desk.db"))
    return database


def sql(statement):
    with connect() as connection:
        rows = connection.execute(statement).fetchall()
    return json.dumps(rows)


def changes():
    """What is different from the last time it was asked, as a watcher would tell it."""
    now = {}
    for name in sorted(os.listdir(folder)):
        status = os.stat(os.path.join(folder, name))
        now[name] = (status.st_size, status.st_mtime_ns)
    told = [name for name in now if now[name] != seen.get(name)]
    seen.clear()
    seen.update(now)
    return "changed: " + ", ".join(told)


def run_tests():
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-v"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def write(path, text):
    with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
        file.write(text)
    return "written"


TOOLS = {
    "sql": (sql, {}),
    "changes": (changes, {"readOnlyHint": True}),
    "run_tests": (run_tests, {"readOnlyHint": True}),
    "write": (write, {}),
}


def answer(message):
    method, given = message.get("method"), message.get("params") or {}
    if method == "initialize":
        info = {"name": "desk", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        listed = [
            {"name": name, "inputSchema": {"type": "object"}, "annotations": hints}
            for name, (_, hints) in TOOLS.items()
        ]
        return {"tools": listed}
    try:
        text = TOOLS[given["name"]][0](**(given.get("arguments") or {}))
        return {"content": [{"type": "text", "text": text}]}
    except Exception as error:  # A tool that fails says so to its caller.
        return {"isError": True, "content": [{"type": "text", "text": str(error)}]}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}), flush=True)
