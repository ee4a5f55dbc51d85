"""HTTP/2 by single frames, and the few messages of gRPC that attacks on it need: shared by tests of the server."""
import socket
import struct
import time

from serving import SLOW

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
SETTINGS_TIMEOUT, ENHANCE_YOUR_CALM = 4, 11
SERVICE = b"/inference.GRPCInferenceService/"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def number(n, bits, first=0):
    most = (1 << bits) - 1
    if n < most:
        return bytes([first | n])
    out = [first | most]
    n -= most
    while n >= 128:
        out.append(n % 128 + 128)
        n //= 128
    return bytes(out + [n])


def literal(name, value, kept=False):
    return (b"\x40" if kept else b"\0") + number(len(name), 7) + name + number(len(value), 7) + value


def head(method, more=b""):
    return (literal(b":method", b"POST") + literal(b":scheme", b"http") + literal(b":path", SERVICE + method) +
            literal(b":authority", b"x") + literal(b"content-type", b"application/grpc") +
            literal(b"te", b"trailers") + more)


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def field(at, data):
    return varint(at << 3 | 2) + varint(len(data)) + data


def infer_message(array, model=b"digits", name=b"image"):
    """A ModelInferRequest of FP32 with its prefix."""
    shape = field(3, b"".join(varint(n) for n in array.shape))
    body = field(1, model) + field(5, field(1, name) + field(2, b"FP32") + shape) + field(7, array.tobytes())
    return b"\0" + struct.pack(">I", len(body)) + body


LIVE = head(b"ServerLive")
INFER = head(b"ModelInfer")
EMPTY = b"\0" * 5  # a message without fields


class Connection:
    def __init__(self, s, settings=b"", timeout=5):
        self.socket = socket.create_connection(("127.0.0.1", s.grpc), timeout=timeout * SLOW)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = b""
        self.send(HELLO + frame(SETTINGS, 0, 0, settings))

    def send(self, data):
        self.socket.sendall(data)

    def flood(self, parts, seconds=1.5):
        """Sends until the server closes or stops reading. Returns whether it took all."""
        end = time.monotonic() + seconds * SLOW
        try:
            for part in parts:
                self.send(part)
                if time.monotonic() > end:
                    return True
        except OSError:
            return False
        return True

    def frame(self):
        """The next frame as kind, flags, stream and payload; None: the connection has ended."""
        while True:
            if len(self.input) >= 9:
                length = int.from_bytes(self.input[:3], "big")
                if len(self.input) >= 9 + length:
                    kind, flags, stream = struct.unpack(">BBI", self.input[3:9])
                    payload = self.input[9:9 + length]
                    self.input = self.input[9 + length:]
                    return kind, flags, stream, payload
            try:
                more = self.socket.recv(1 << 20)
            except ConnectionError:
                more = b""
            if not more:
                return None
            self.input += more

    def frames(self, seconds=0.5):
        """All frames until none comes for so long; the last is None if the connection ended."""
        self.socket.settimeout(seconds)
        out = []
        try:
            while not out or out[-1]:
                out.append(self.frame())
        except TimeoutError:
            pass
        return out

    def until(self, wanted, seconds=30):
        """The first frame for which wanted(kind, flags) holds; an error if the connection ends before."""
        self.socket.settimeout(seconds)
        while True:
            got = self.frame()
            assert got, "the connection ended"
            if wanted(got[0], got[1]):
                return got

    def answer(self):
        """Header blocks and data of the answer on the only stream, to its end or that of the connection."""
        got = {HEADERS: b"", DATA: b""}
        for kind, flags, _, payload in iter(self.frame, None):
            if kind in got:
                got[kind] += payload
                if flags & END_STREAM:
                    break
        return got[HEADERS], got[DATA]

    def close(self):
        self.socket.close()
