"""A request to a server on a UNIX socket."""
import socket


def ask(path, method, target, body=b""):
    """Status and body of the answer."""
    with socket.socket(socket.AF_UNIX) as to:
        to.settimeout(30)
        to.connect(path)
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        to.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: to.recv(65536), b""))
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), rest
