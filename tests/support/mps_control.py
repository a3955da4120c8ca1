"""Behaves like NVIDIA's `nvidia-cuda-mps-control`: a daemon with `-f`, else a client that sends orders from stdin.

`MPS_STAND_IN` changes it: `fails` does not start, `silent` starts and does not answer, `deaf` ignores `quit`.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PIPES = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
HOW = os.environ.get("MPS_STAND_IN", "")


def daemon() -> int:
    if HOW == "fails":
        print("Failed to start control daemon: operation not permitted", file=sys.stderr)
        return 1
    if HOW == "silent":
        time.sleep(600)
    server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    log = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "control.log"
    log.write_text(f"started {server.pid}\n")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(PIPES / "control"))
        listening.listen()
        while True:
            with listening.accept()[0] as connection:
                order = connection.recv(1000).decode().strip()
                with log.open("a") as orders:
                    orders.write(f"{order}\n")
                if order.startswith("quit") and HOW != "deaf":
                    server.kill()
                    server.wait()
                    (PIPES / "control").unlink()
                    connection.sendall(b"\n")
                    return 0
                connection.sendall(f"{server.pid}\n".encode())


def client() -> int:
    for order in sys.stdin:
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(str(PIPES / "control"))
            except OSError:
                print("Cannot find MPS control daemon process")
                return 1
            asking.sendall(order.encode())
            print(asking.recv(1000).decode(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(daemon() if sys.argv[1:] == ["-f"] else client())
