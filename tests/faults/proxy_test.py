#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The fault proxy itself: each fault does what its table says, against a small TLS server. Needs no Kubernetes."""
import http.client
import http.server
import json
import pathlib
import ssl
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import fault_proxy  # noqa: E402
from fault_proxy import Rule  # noqa: E402

FRAMES = [json.dumps({"type": "ADDED", "object": {"n": n}}).encode() + b"\n" for n in range(4)]


class Handler(http.server.BaseHTTPRequestHandler):
    """Counts what it has done; a watch is four events and the end."""
    protocol_version = "HTTP/1.1"
    done = []

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Handler.done.append(self.path)
        self.answer(b'{"made":true}')

    def do_GET(self):
        if "watch=true" not in self.path:
            return self.answer(b"{}")
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for frame in FRAMES:
            self.wfile.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")
            self.wfile.flush()
            time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")
        return None

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Proxy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name)
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        cls.server.handle_error = lambda *_: None   # broken connections are the point
        (path / "server").mkdir()
        # a proxy that never runs makes the server's certificate
        maker = fault_proxy.FaultProxy.__new__(fault_proxy.FaultProxy)
        maker.identity = (str(path / "server" / "s.crt"), str(path / "server" / "s.key"))
        maker.new_certificate()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*maker.identity)
        cls.server.socket = tls.wrap_socket(cls.server.socket, server_side=True)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.proxy = fault_proxy.FaultProxy(path / "proxy", cls.server.server_port, maker.identity[0])

    @classmethod
    def tearDownClass(cls):
        cls.proxy.stop()
        cls.server.shutdown()
        cls.folder.cleanup()

    def setUp(self):
        self.proxy.clear()
        Handler.done.clear()

    def ask(self, method="POST", path="/api/v1/namespaces/a/pods"):
        """(status, body, headers); status 0: closed without an answer, with what had come."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.proxy.port, timeout=10, context=ssl.create_default_context(cafile=str(self.proxy.ca)))
        got = b""
        try:
            connection.request(method, path, b"{}" if method == "POST" else None)
            answer = connection.getresponse()
            while piece := answer.read1():
                got += piece
            return answer.status, got, dict(answer.getheaders())
        except (OSError, http.client.HTTPException):
            return 0, got, {}
        finally:
            connection.close()

    def watch(self):
        return self.ask("GET", "/api/v1/namespaces/a/pods?watch=true")

    def test_passes_everything_without_rules(self):
        self.assertEqual(self.ask()[:2], (200, b'{"made":true}'))
        self.assertEqual(self.watch()[:2], (200, b"".join(FRAMES)))
        self.assertEqual(self.ask("GET")[0], 200)
        self.assertEqual((self.proxy.count("POST", "pods") > 0, self.proxy.count("WATCH", "pods") > 0, self.proxy.count("LIST", "pods")), (True, True, 1))

    def test_faults_before_the_server_leave_nothing_done(self):
        self.proxy.add(Rule("drop", "POST"), Rule("fail", "POST", code=429, retry_after=3))
        self.assertEqual(self.ask()[0], 0)
        code, body, headers = self.ask()
        self.assertEqual((code, headers["Retry-After"], json.loads(body)["reason"]), (429, "3", "TooManyRequests"))
        self.assertEqual(Handler.done, [])

    def test_faults_after_the_server_have_been_done(self):
        self.proxy.add(Rule("lose", "POST"), Rule("lie", "POST", code=504))
        self.assertEqual(self.ask()[0], 0)
        self.assertEqual(self.ask()[0], 504)
        self.assertEqual(len(Handler.done), 2)

    def test_rules_match_skip_and_end(self):
        self.proxy.add(Rule("fail", "POST", "/pods", count=2, skip=1, code=500))
        self.assertEqual([self.ask()[0] for _ in range(4)], [200, 500, 500, 200])
        self.proxy.add(Rule("fail", "POST", "/services"), Rule("cut"))
        self.assertEqual(self.ask()[0], 200)

    def test_watches_break_as_asked(self):
        for rule, code, body in ((Rule("cut", after=2), 0, b"".join(FRAMES[:2])), (Rule("truncate", after=1), 0, FRAMES[0] + FRAMES[1][:len(FRAMES[1]) // 2]),
                                 (Rule("split"), 200, b"".join(FRAMES)), (Rule("join"), 200, b"".join(FRAMES)), (Rule("late", seconds=0.01), 200, b"".join(FRAMES)),
                                 (Rule("duplicate"), 200, b"".join(f * 2 for f in FRAMES)), (Rule("freeze", seconds=0.1), 0, b"")):
            with self.subTest(str(rule)):
                self.proxy.add(rule)
                self.assertEqual(self.watch()[:2], (code, body))
        self.proxy.add(Rule("gone"))
        self.assertEqual(self.watch()[0], 410)
        self.proxy.add(Rule("expire", after=1))
        code, body, _ = self.watch()
        self.assertEqual((code, json.loads(body.splitlines()[1])["object"]["code"]), (0, 410))

    def test_a_seed_is_a_schedule(self):
        self.assertEqual(list(map(str, fault_proxy.random_rules(7))), list(map(str, fault_proxy.random_rules(7))))
        self.assertNotEqual(list(map(str, fault_proxy.random_rules(7))), list(map(str, fault_proxy.random_rules(8))))
        drawn = {rule.fault for seed in range(20) for rule in fault_proxy.random_rules(seed)}
        self.assertEqual(drawn, set(fault_proxy.REQUEST_FAULTS) | set(fault_proxy.WATCH_FAULTS))


if __name__ == "__main__":
    unittest.main()
