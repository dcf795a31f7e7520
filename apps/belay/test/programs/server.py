"""A stdio server of Python's own: temporary files, subprocesses, pools of processes, its own loopback."""
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading


def square(number):
    return number * number


def life(folder):
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    with open(os.devnull, "w") as null:
        null.write("x")
    spoken = subprocess.run(["sh", "-c", "echo sub"], capture_output=True, text=True, check=True).stdout.strip()
    with multiprocessing.Pool(2) as pool:
        squares = pool.map(square, [1, 2, 3])
    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        shared["a"] = 1
        squares.append(shared["a"])
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=lambda: listener.accept()[0].sendall(b"own"), daemon=True).start()
    own = socket.create_connection(listener.getsockname()).recv(3).decode()
    with open(os.path.join(folder, "made"), "w") as file:
        file.write("made")
    return f"{spoken} {squares} {own}"


def main():
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = {}
        if request["method"] == "initialize":
            result = {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "python", "version": "1"},
            }
        elif request["method"] == "tools/list":
            result = {"tools": [{"name": "life", "inputSchema": {"type": "object"}}]}
        elif request["method"] == "tools/call":
            text = life(request["params"]["arguments"]["folder"])
            result = {"content": [{"type": "text", "text": text}]}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
