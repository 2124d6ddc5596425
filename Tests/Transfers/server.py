#!/usr/bin/env python3
"""A server of HTTP with faults, for the tests of background transfers.

    server.py [PORT]    prints "port N" when it listens

GET /NAME?size=N&seed=N&fault=WORD serves size bytes that follow from the seed. PUT /NAME takes a file, and answers with its SHA-256; GET /put/NAME
returns its SHA-256. The faults, each for the first requests of a URL where nothing else is said:

    none       no fault, ranges, a strong tag
    cut        the connection is closed at some place, three times
    stall      nothing more is sent after some bytes, twice
    halves     nothing more is sent after half of what was requested, twice
    change     cut; then the file is another one, with another tag (seed + 1)
    swap       cut; then the file is another one under the same tag (seed + 1)
    promise    more bytes are announced than are sent, twice; always for promise-always
    short      fewer bytes are announced than the file has, always
    redirect   302 to the same without a fault; redirect-loop to itself
    auth       401, always
    noranges   cut twice, without ranges and without a tag
    weak       cut twice, with a weak tag
    busy       503 with Retry-After: 1, twice
    missing    404
    garbage    the answer is not HTTP, always
    slow       1 MiB a second
"""
import hashlib, http.server, random, socket, socketserver, sys, threading, time, urllib.parse

WHOLE = random.Random(7).randbytes(72 << 20)
STEP = 1 << 16
counts, uploads, lock = {}, {}, threading.Lock()


def content(seed, size):
    begin = seed * 7919 % (len(WHOLE) - size)
    return memoryview(WHOLE)[begin:begin + size]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def give_up(self):
        """Closes the connection, so that the client notices at once."""
        self.close_connection = True
        self.wfile.flush()
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def do_PUT(self):
        left, sum_ = int(self.headers["Content-Length"]), hashlib.sha256()
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        with lock:
            number = counts[self.path] = counts.get(self.path, 0) + 1
        while left:
            data = self.rfile.read(min(left, STEP))
            if not data or query.get("fault") == "cut" and number < 3 and left < 1 << 20:
                return self.give_up()
            left -= len(data)
            sum_.update(data)
        uploads[urllib.parse.urlsplit(self.path).path] = sum_.hexdigest()
        self.answer(201, body=sum_.hexdigest().encode())

    def do_GET(self):
        try:
            self.get()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def get(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path.startswith("/put/"):
            return self.answer(200, body=uploads.get(url.path[4:], "").encode())
        query = dict(urllib.parse.parse_qsl(url.query))
        fault, size, seed = query.get("fault", "none"), int(query.get("size", 0)), int(query.get("seed", 0))
        with lock:
            number = counts[self.path] = counts.get(self.path, 0) + 1
        if fault == "auth":
            return self.answer(401, [("WWW-Authenticate", 'Basic realm="x"')])
        if fault == "garbage":
            self.wfile.write(b"This is not HTTP.\n" * 8)
            return self.give_up()
        if fault == "missing":
            return self.answer(404, body=b"there is no such file")
        if fault == "busy" and number <= 2:
            return self.answer(503, [("Retry-After", "1")])
        if fault == "redirect":
            return self.answer(302, [("Location", self.path.replace("fault=redirect", "fault=none"))])
        if fault == "redirect-loop":
            return self.answer(302, [("Location", self.path)])
        cuts = {"cut": 3, "change": 1, "swap": 1, "noranges": 2, "weak": 2}.get(fault, 0)
        if fault in ("change", "swap") and number > 1:
            seed += 1
        tag = '"%d"' % (int(query.get("seed", 0)) if fault == "swap" else seed)
        body = content(seed, size)
        begin = 0
        wanted = self.headers.get("Range")
        condition = self.headers.get("If-Range")
        if wanted and fault != "noranges" and condition in (None, tag):
            begin = int(wanted[len("bytes="):].rstrip("-"))
            if begin >= size:
                return self.answer(416, [("Content-Range", f"bytes */{size}")])
        announced = size - begin
        if fault == "promise-always" or fault == "promise" and number <= 2:
            announced += 1000
        if fault == "short":
            announced = max(0, announced - 1000)
        self.send_response(206 if begin else 200)
        if fault == "weak":
            self.send_header("ETag", "W/" + tag)
        elif fault != "noranges":
            self.send_header("ETag", tag)
            self.send_header("Accept-Ranges", "bytes")
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{size - 1}/{size}")
        self.send_header("Content-Length", str(announced))
        self.end_headers()
        end = size
        stalls = fault in ("stall", "halves") and number <= 2
        if fault == "halves" and stalls:
            end = begin + (size - begin) // 2
        elif number <= cuts or stalls:
            end = begin + random.randrange(0, max(1, size - begin))
        for place in range(begin, end, STEP):
            self.wfile.write(body[place:min(place + STEP, end)])
            if fault == "slow":
                time.sleep(STEP / (1 << 20))
        if stalls:
            # Until the client has had enough.
            self.connection.settimeout(600)
            try:
                self.connection.recv(1)
            except OSError:
                pass
            return self.give_up()
        if end < size or announced != size - begin:
            self.give_up()


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    print("port", server.server_port, flush=True)
    server.serve_forever()
