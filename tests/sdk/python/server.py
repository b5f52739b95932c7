"""A server for one class or test: `hookstash dev` on a free port, with a store that outlives it.

HOOKSTASH_TEST_BIN is the program. Its store is in the Redis at HOOKSTASH_TEST_REDIS_URL, under a
prefix of its own, or without one in a directory.
"""

import atexit
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import uuid

from destination import Destination, until
from qstash import QStash
from qstash.errors import QStashError

PROGRAM = os.environ.get("HOOKSTASH_TEST_BIN")
REDIS_URL = os.environ.get("HOOKSTASH_TEST_REDIS_URL")

# A server that is not ready by then never will be.
READY_MAX_S = 60

# Whoever ends the tests ends their servers.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


class Server:
    def __init__(self, **settings):
        """Starts one whose environment is these settings."""
        if not PROGRAM:
            raise RuntimeError("set HOOKSTASH_TEST_BIN to the path of hookstash")
        self.settings = settings
        self.directory = tempfile.TemporaryDirectory(prefix="hookstash-py-")
        if REDIS_URL:
            self.store = ["--redis-url", REDIS_URL, "--key-prefix", f"py-{uuid.uuid4()}"]
        else:
            self.store = ["--data-dir", self.directory.name]
        self.run()

    def run(self):
        self.process = subprocess.Popen(
            [PROGRAM, "dev", "--port", "0", *self.store],
            env={"HOOKSTASH_LOG": "error", **self.settings},
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.process.kill)
        deadline = threading.Timer(READY_MAX_S, self.process.kill)
        deadline.start()
        try:
            lines = self.ready_lines()
        finally:
            deadline.cancel()
        self.url, self.token = (
            re.search(f'^export {name}="(.*)"$', lines, re.MULTILINE).group(1)
            for name in ("QSTASH_URL", "QSTASH_TOKEN")
        )
        self.client = QStash(self.token, base_url=self.url)

    def ready_lines(self):
        """What it prints until it says that it is ready."""
        lines = ""
        while "Ctrl-C ends it." not in lines:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"hookstash dev ended: {lines}")
            lines += line
        return lines

    def stop(self, with_signal=signal.SIGKILL):
        self.process.send_signal(with_signal)
        self.process.wait()
        atexit.unregister(self.process.kill)
        self.process.stdout.close()

    def restart(self):
        """Another process on the same store, at another port: `url` and `client` are new."""
        self.stop()
        self.run()

    def end(self):
        """Ends it and removes its directory."""
        self.stop()
        self.directory.cleanup()


class ServerTest(unittest.TestCase):
    """A test whose class has a server, with `settings` as its environment, and a destination."""

    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.destination = Destination()
        cls.addClassCleanup(cls.destination.stop)
        cls.server = Server(**cls.settings)
        cls.addClassCleanup(cls.server.end)

    @property
    def client(self):
        return self.server.client

    def assert_refused(self, status, text):
        return self.assertRaisesRegex(QStashError, f"(?s)status: {status}.*{text}")

    def letter_of(self, message_id):
        """The dead letter of a message; `None` while there is none."""
        letters = self.client.dlq.list(filter={"message_id": message_id}).messages
        return letters[0] if letters else None

    def wait_for_letter(self, message_id):
        return until(lambda: self.letter_of(message_id), "a dead letter")
