"""Send the messages that stdin lists as JSON, and print the result of each: null, or the name of the error.

Each is a kind (udp or tcp), a host and a port to send to, a port to send from (0: any), the bytes in hexadecimal
digits, how often, and how many seconds to wait after each time. Runs in a guest as whoever sends, in any network.
"""

import json
import socket
import sys
import time

LIMIT = 5.0


def send(kind: str, host: str, port: int, source: int, content: str, times: int, pause: float) -> None:
    for _ in range(times):
        with socket.socket(type=socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as sender:
            sender.settimeout(LIMIT)
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sender.bind(("", source))
            sender.connect((host, port))
            sender.send(bytes.fromhex(content))
        time.sleep(pause)


def outcome(shot: dict[str, object]) -> str | None:
    try:
        send(**shot)  # type: ignore[arg-type]
    except OSError as error:
        return type(error).__name__
    return None


print(json.dumps([outcome(shot) for shot in json.load(sys.stdin)]))
