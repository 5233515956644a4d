# SPDX-License-Identifier: Apache-2.0
"""A TLS proxy in front of a real API server that does to requests and watches what bad days do. Every fault is a Rule that
matches requests and is used up after `count` of them; random_rules(seed) draws a schedule of them.

Request faults                                    Watch faults (requests with watch=true)
  delay       waits before forwarding               cut        ends the stream after `after` frames
  drop        closes, nothing was forwarded         truncate   cuts in the middle of the next frame
  lose        closes after the server has done it   split      sends every frame in pieces of a few bytes
  fail        500, 503, 504, 429, 409 without       join       sends frames in pairs
              forwarding; may carry Retry-After     late       holds each frame back
  deny        403 or 422 in place of a write, as
              quotas, webhooks and validation do
  lie         500 or 504 after the server has       duplicate  sends each event twice
              done it                               expire     410 as an event, then the end
                                                    gone       410 instead of the stream
                                                    freeze     says nothing more, then closes
  refuse      (either kind) closes new connections for a while

The proxy ends TLS with a certificate of its own (`ca` is what its clients must trust), parses HTTP/1.1 and keeps one
connection to the server per client's connection. All proxies live in one thread; their counters may be read from any.
"""
import asyncio
import collections
import dataclasses
import json
import random
import re
import ssl
import subprocess
import threading

STATUS_REASONS = {403: "Forbidden", 422: "Invalid", 409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
REQUEST_FAULTS = ("delay", "drop", "lose", "fail", "lie", "deny")
DENIED = (("POST", "/pods"), ("POST", "/pods"), ("POST", "/configmaps"), ("POST", "/services"), ("PATCH", "/status"), ("POST", "/events"))
WATCH_FAULTS = ("cut", "truncate", "split", "join", "late", "duplicate", "expire", "gone", "freeze")


@dataclasses.dataclass
class Rule:
    fault: str
    method: str = ""          # "" = any
    path: str = ""            # regular expression, searched in path and query
    count: int = 1
    skip: int = 0             # matching requests that pass first
    code: int = 500
    retry_after: int = -1     # seconds; -1 = no header
    seconds: float = 0.3
    after: int = 0            # frames

    @property
    def watch(self):
        return self.fault in WATCH_FAULTS

    def __str__(self):
        extra = {"deny": f" {self.code}", "fail": f" {self.code}" + (f" Retry-After {self.retry_after}" if self.retry_after >= 0 else ""), "lie": f" {self.code}",
                 "delay": f" {self.seconds:.1f} s", "late": f" {self.seconds:.1f} s", "freeze": f" {self.seconds:.1f} s", "cut": f" after {self.after}"}
        return f"{self.fault}{extra.get(self.fault, '')} x{self.count} of {self.method or 'any'} {self.path or '.'}" + (f" after {self.skip}" if self.skip else "")


def random_rules(seed, size=14):
    """A schedule of faults, the same for the same seed."""
    draw = random.Random(seed)
    requests = [("POST", "/pods"), ("POST", "/pods"), ("PATCH", "/status"), ("PATCH", "/status"), ("POST", "/configmaps"), ("POST", "/services"),
                ("POST", "/events"), ("POST", "/tokenreviews"), ("PUT", "/leases"), ("GET", "/secrets"), ("GET", "/leases"), ("GET", "resourceVersion"),
                ("POST", ""), ("PATCH", ""), ("", "")]
    rules = []
    for _ in range(size):
        if draw.random() < 0.45:
            rules.append(Rule(draw.choice(WATCH_FAULTS), "GET", draw.choice(["/pods", "/configmaps", "/services", "pipelinejobs", ""]),
                              count=draw.randint(1, 3), seconds=draw.uniform(0.1, 1.0), after=draw.randint(0, 4)))
            continue
        fault = draw.choice(REQUEST_FAULTS)
        if fault == "deny":   # once: the operator asks again after 30 s
            method, path = draw.choice(DENIED)
            rules.append(Rule(fault, method, path, skip=draw.randint(0, 2), code=draw.choice([403, 422])))
            continue
        method, path = draw.choice(requests)
        code = draw.choice([500, 503, 504, 429, 409] if fault == "fail" else [500, 504])
        rules.append(Rule(fault, method, path, count=draw.randint(1, 3), skip=draw.randint(0, 2), code=code,
                          retry_after=draw.choice([-1, 1]) if code in (429, 503) else -1, seconds=draw.uniform(0.1, 1.0)))
    return rules


class Request:
    def __init__(self, head, body):
        self.head, self.body = head, body
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = first.split(" ", 2)
        self.headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
        self.watch = self.method == "GET" and "watch=true" in self.target

    @property
    def bytes(self):
        return self.head + b"\r\n\r\n" + self.body


_loops, _loops_lock = [], threading.Lock()


def _loop():
    """The event loop of all proxies, in a thread of its own that lives as long as the program."""
    with _loops_lock:
        if not _loops:
            _loops.append(asyncio.new_event_loop())
            threading.Thread(target=_loops[0].run_forever, daemon=True).start()
        return _loops[0]


class Closed(Exception):
    """Ends this client's connection."""


class FaultProxy:
    def __init__(self, folder, server_port, server_ca):
        folder.mkdir(parents=True, exist_ok=True)
        self.server_port, self.server_ca = server_port, str(server_ca)
        self.ca, key = folder / "proxy.crt", folder / "proxy.key"
        self.identity = (str(self.ca), str(key))
        self.new_certificate()
        self.rules, self.lock = [], threading.Lock()   # guards rules, used, requests, refused_until
        self.used = []                                  # descriptions, in order
        self.requests = collections.Counter()           # "LIST pods", "WATCH pods", "POST pods", ...
        self.log = []                                   # "METHOD target", in order
        self.clients, self.watches = {}, {}             # task by connection; target by connection
        self.refuse_seconds = 0
        self.port = None
        self.loop = _loop()
        asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(10)

    def new_certificate(self):
        """For new connections once restart_tls() is called; self-signed, so the file is also what clients must trust."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-keyout", self.identity[1], "-out", self.identity[0], "-subj", "/CN=proxy", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)

    # --- from the test's thread ---------------------------------------------------------------------------------------

    def add(self, *rules):
        with self.lock:
            self.rules += rules

    def clear(self):
        with self.lock:
            self.rules = []

    def left(self):
        with self.lock:
            return [str(rule) for rule in self.rules]

    def count(self, verb, resource=""):
        with self.lock:
            return sum(n for key, n in self.requests.items() if key.split(" ")[0] == verb and resource in key)

    def cut_watches(self, resource=""):
        """Ends all open watches of this resource now; returns how many there were."""
        return asyncio.run_coroutine_threadsafe(self._cut(resource), self.loop).result(10)

    def cut_all(self):
        """Closes every connection."""
        asyncio.run_coroutine_threadsafe(self._cut_all(), self.loop).result(10)

    def refuse(self, seconds):
        async def set_limit():
            self.refuse_seconds = self.loop.time() + seconds
        asyncio.run_coroutine_threadsafe(set_limit(), self.loop).result(10)
        self.cut_all()

    def rotate(self):
        """Another certificate, by itself its own authority: for new connections."""
        self.new_certificate()
        self.loop.call_soon_threadsafe(self.tls.load_cert_chain, *self.identity)

    def stop(self):
        self.loop.call_soon_threadsafe(self.server.close)
        self.cut_all()

    # --- the loop's thread --------------------------------------------------------------------------------------------

    async def _start(self):
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(*self.identity)
        self.upstream_tls = ssl.create_default_context(cafile=self.server_ca)
        self.server = await asyncio.start_server(self._client, "127.0.0.1", 0, ssl=self.tls, limit=1 << 24)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _cut(self, resource):
        hit = [writer for writer, target in self.watches.items() if resource in target]
        for writer in hit:
            self.clients[writer].cancel()
            self.watches.pop(writer)
        return len(hit)

    async def _cut_all(self):
        for task in self.clients.values():
            task.cancel()

    async def _client(self, reader, writer):
        self.clients[writer] = asyncio.current_task()
        upstream = None
        try:
            if self.loop.time() < self.refuse_seconds:
                raise Closed
            upstream = await asyncio.open_connection("127.0.0.1", self.server_port, ssl=self.upstream_tls, limit=1 << 24)
            while True:
                request = await self._read_request(reader)
                await self._serve(request, reader, writer, *upstream)
        except (Closed, OSError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            self.clients.pop(writer, None)
            writer.transport.abort()
            if upstream:
                upstream[1].transport.abort()

    @staticmethod
    async def _read_request(reader):
        head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        return Request(head, await reader.readexactly(int(length[1])) if length else b"")

    def _take(self, request):
        """The rule for this request, used up by one; counts the request."""
        path = request.target.partition("?")[0].rstrip("/").split("/")
        named = len(path) > 1 and path[-1] not in KNOWN_PLURALS
        plural = next((part for part in reversed(path) if part in KNOWN_PLURALS), path[-1])
        verb = "WATCH" if request.watch else "LIST" if request.method == "GET" and not named else request.method
        with self.lock:
            self.requests[f"{verb} {plural}"] += 1
            self.log.append(f"{request.method} {request.target}")
            for rule in self.rules:
                if rule.watch != request.watch or rule.method not in ("", request.method) or not re.search(rule.path, request.target):
                    continue
                if rule.skip > 0:
                    rule.skip -= 1
                    continue
                rule.count -= 1
                if rule.count <= 0:
                    self.rules.remove(rule)
                self.used.append(f"{rule.fault} {rule.code if rule.fault in ('fail', 'lie', 'deny') else ''}: {request.method} {request.target.partition('?')[0]}")
                return rule
        return None

    async def _serve(self, request, reader, writer, server_reader, server_writer):
        rule = self._take(request)
        fault = rule.fault if rule else ""
        if fault == "delay":
            await asyncio.sleep(rule.seconds)
        if fault == "drop":
            raise Closed
        if fault in ("fail", "gone", "deny"):
            return await self._answer(writer, 410 if fault == "gone" else rule.code, rule.retry_after)
        server_writer.write(request.bytes)
        await server_writer.drain()
        head = await server_reader.readuntil(b"\r\n\r\n")
        chunked = b"transfer-encoding: chunked" in head.lower()
        if request.watch and chunked and head.startswith(b"HTTP/1.1 200"):
            writer.write(head)
            self.watches[writer] = request.target
            stream = asyncio.ensure_future(self._stream(rule, writer, server_reader))
            gone = asyncio.ensure_future(reader.read(1))   # the client asks for nothing while it watches
            try:
                await asyncio.wait({stream, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not stream.done():
                    raise Closed
                return stream.result()
            finally:
                self.watches.pop(writer, None)
                stream.cancel()
                gone.cancel()
                await asyncio.gather(stream, gone, return_exceptions=True)   # both have let go of their connections
        body = head + await self._body(head, chunked, server_reader)
        if fault == "lose":
            raise Closed
        if fault == "lie":
            return await self._answer(writer, rule.code, -1)
        writer.write(body)
        return await writer.drain()

    @staticmethod
    async def _body(head, chunked, reader):
        if chunked:
            parts = []
            while True:
                size = await reader.readuntil(b"\r\n")
                data = await reader.readexactly(int(size, 16) + 2)
                parts += [size, data]
                if int(size, 16) == 0:
                    return b"".join(parts)
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        return await reader.readexactly(int(length[1])) if length else b""

    @staticmethod
    async def _answer(writer, code, retry_after):
        body = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": STATUS_REASONS.get(code, ""),
                           "message": "exceeded quota: faults" if code == 403 else f"fault proxy: {code}", "code": code}).encode()
        extra = f"Retry-After: {retry_after}\r\n" if retry_after >= 0 else ""
        writer.write(f"HTTP/1.1 {code} Fault\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async def _stream(self, rule, writer, reader):
        """Frames of a watch, one JSON line each, in our own chunks."""
        fault, left, pair, held = (rule.fault if rule else ""), (rule.after if rule else 0), b"", b""

        async def send(data):
            if data:
                writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                await writer.drain()

        async def chunk():
            size = int(await reader.readuntil(b"\r\n"), 16)
            return (await reader.readexactly(size + 2))[:-2]
        coming = asyncio.ensure_future(chunk())
        try:
            while True:
                if pair and not (await asyncio.wait({coming}, timeout=0.3))[0]:   # no frame is held for ever
                    await send(pair)
                    pair = b""
                data = await coming
                if not data:
                    await send(pair + held)
                    writer.write(b"0\r\n\r\n")
                    return await writer.drain()
                coming = asyncio.ensure_future(chunk())
                *frames, held = (held + data).split(b"\n")
                for line in (frame + b"\n" for frame in frames):
                    if fault in ("cut", "truncate", "freeze", "expire") and left <= 0:
                        await self._end(fault, rule, line, send)
                    left -= 1
                    if fault == "split":
                        step = 7 if len(line) < 600 else 131
                        for at in range(0, len(line), step):
                            await send(line[at:at + step])
                    elif fault == "join":
                        pair += line
                        if pair.count(b"\n") == 2:
                            await send(pair)
                            pair = b""
                    else:
                        if fault == "late":
                            await asyncio.sleep(rule.seconds)
                        await send(line * 2 if fault == "duplicate" and b'"BOOKMARK"' not in line else line)
        finally:
            coming.cancel()

    @staticmethod
    async def _end(fault, rule, line, send):
        if fault == "truncate":
            await send(line[:len(line) // 2])
        if fault == "expire":
            await send(json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "fault proxy"}}).encode() + b"\n")
        if fault == "freeze":
            await asyncio.sleep(rule.seconds)
        raise Closed


KNOWN_PLURALS = {"pods", "services", "configmaps", "nodes", "events", "secrets", "leases", "pipelinejobs", "tokenreviews", "podgroups",
                 "selfsubjectaccessreviews", "customresourcedefinitions"}
