"""A web server of a store that misbehaves as it is told: python3 store_server.py FOLDER LOG [CERTIFICATE KEY]
prints its port. A path /MODE/... answers as MODE says; LOG gets a line for each request."""
import http.server
import os
import ssl
import sys
import threading

FOLDER, LOG = sys.argv[1:3]
seen = {}
lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", length=None, more=()):
        self.send_response(status)
        for name, value in more:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        mode, _, name = self.path.lstrip("/").partition("/")
        is_chunk = name.startswith("chunks/")
        with lock:
            times = seen[self.path] = seen.get(self.path, 0) + 1
            with open(LOG, "a") as log:
                log.write(f"{mode} {name} {self.headers.get('Authorization', '-')}\n")
        path = os.path.join(FOLDER, name)
        if not os.path.isfile(path):
            return self.answer(404, b"no such file")
        with open(path, "rb") as f:
            body = f.read()
        if mode == "busy" and times < 3:      # passes
            return self.answer(503, b"later")
        if mode == "cut" and is_chunk and times < 3:
            self.close_connection = True
            return self.answer(200, body[: len(body) // 2], len(body))
        if mode == "never" and is_chunk:
            self.close_connection = True
            return self.answer(404)
        if mode == "long" and is_chunk:       # more than the index says
            return self.answer(200, body + bytes(1 << 20))
        if mode == "endless":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                return None
        if mode == "short" and is_chunk:
            return self.answer(200, body[:-1])
        if mode == "forbidden":
            return self.answer(403)
        if mode == "around":                  # for ever
            return self.answer(302, more=[("Location", self.path)])
        if mode == "moved":
            return self.answer(302, more=[("Location", f"/plain/{name}")])
        if mode == "local":
            return self.answer(302, more=[("Location", f"file://{os.path.abspath(path)}")])
        if mode == "slow" and is_chunk:       # a chunk, and then nothing for a while
            if times == 1 and sum(path.startswith("/slow/chunks") for path in seen) > 2:
                threading.Event().wait(30)
        return self.answer(200, body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3], sys.argv[4])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
