"""Connect to ports of a host, and print those that answer: connect.py HOST PORT... Runs in a guest as any user."""

import json
import socket
import sys
from contextlib import suppress

LIMIT = 5.0


def answers(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), LIMIT):
        return True
    return False


host, *ports = sys.argv[1:]
print(json.dumps([port for port in map(int, ports) if answers(host, port)]))
