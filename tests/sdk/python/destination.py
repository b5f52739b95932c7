"""A destination on this machine: records what is delivered and answers as each path was told."""

import dataclasses
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable, Mapping, NamedTuple

SOON_S = 30.0


class Answer(NamedTuple):
    status: int
    text: str = ""
    headers: Mapping[str, str] = {}
    when: Callable[[], object] = lambda: None
    """It goes out once this returns."""


@dataclasses.dataclass
class Call:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at_ms: int
    """When it came, in Unix time."""
    open: int = 1
    """How many calls of its path were under way when it came, itself included."""
    is_open: bool = True


class Destination:
    def __init__(self):
        self.calls = []
        self.answers = {}
        self.lock = threading.Lock()
        self.server = Listener(("127.0.0.1", 0), handler_of(self))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, path, *answers):
        """The URL of `path`, which answers these statuses (with text, headers and so on) in order;
        the last one repeats."""
        if answers:
            self.answers[path] = [Answer(*answer) for answer in answers]
        return f"http://127.0.0.1:{self.server.server_port}{path}"

    def record(self, call):
        """Its answer."""
        with self.lock:
            earlier = self.at(call.path)
            call.open += sum(one.is_open for one in earlier)
            self.calls.append(call)
        answers = self.answers.get(call.path, [Answer(200)])
        return answers[min(len(earlier), len(answers) - 1)]

    def at(self, path):
        return [call for call in self.calls if call.path == path]

    def wait_for(self, path, count):
        until(lambda: len(self.at(path)) >= count, f"{count} requests at {path}")
        return self.at(path)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *given):
        # A server that is killed breaks its connections.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(*given)


def handler_of(destination):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            call = Call(self.command, self.path, self.headers, body, now_ms())
            status, text, headers, when = destination.record(call)
            when()
            call.is_open = False
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

        def log_message(self, *_):
            pass

    return Handler


def now_ms():
    return time.time_ns() // 1_000_000


def until(ask, what):
    """Asks until the answer is true, and returns it."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"waited {SOON_S} s in vain for {what}")


def somewhere():
    """A path that no other test uses."""
    return f"/{uuid.uuid4()}"
