#!/usr/bin/env python3
"""A peer for ./bench peers: UCX's active messages as its own ucx_perftest measures them, which spins on both sides.

Usage: ucx_peer.py shm|tcp. A message is no call: there is no function, no reply and no value. Answers as rounds.h says;
it has no count of calls in flight, so "rate" is of messages one way."""

import os
import signal
import subprocess
import sys
import time

TRANSPORTS = {"shm": "posix,sysv,self", "tcp": "tcp,self"}


def measure(transport, port, test, size, count):
    """The last line of the table: iterations, then typical, average and overall of latency (us), MB/s, messages/s."""
    environment = dict(os.environ, UCX_TLS=TRANSPORTS[transport], UCX_NET_DEVICES="all" if transport == "shm" else "lo")
    command = ["ucx_perftest", "-t", test, "-s", str(size), "-n", str(count), "-w", "100", "-p", str(port), "-f", "-v"]
    server = subprocess.Popen(command[:1] + ["-p", str(port)], env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            time.sleep(0.1)
            client = subprocess.run(command + ["127.0.0.1"], env=environment, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, text=True, timeout=60)
            if client.returncode == 0:
                row = [line for line in client.stdout.splitlines() if line.lstrip()[:1].isdigit()][-1]
                return [float(cell) for cell in row.split(",")]
        raise RuntimeError("ucx_perftest did not connect")
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


def answer(transport, port, what, size, count):
    if what == "latency":
        return 2 * measure(transport, port, "ucp_am_lat", size, count)[1]  # it prints half a round trip
    row = measure(transport, port, "ucp_am_bw", size, count)
    return row[-1] if what == "rate" else row[-1] * size / 1e9


def main():
    transport, port = sys.argv[1], int(sys.argv[2])
    subprocess.run(["ucx_perftest", "-h"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    print("ready", flush=True)
    for line in sys.stdin:
        what, size, count, _ = line.split()
        print(answer(transport, port, what, int(size), int(count)), flush=True)


if __name__ == "__main__":
    main()
