"""What receivers with older and newer keys accept while the signing keys are rotated."""

import base64
import os
import threading
import unittest
import uuid

from destination import somewhere
from qstash import Receiver
from qstash.errors import SignatureError
from server import ServerTest


class KeysTest(ServerTest):
    settings = {"HOOKSTASH_SECRET_KEY": base64.b64encode(os.urandom(32)).decode()}

    def accepts(self, keys, call):
        """Whether a receiver that was given these keys accepts the delivery."""
        signature = call.headers["Upstash-Signature"]
        url = self.destination.url(call.path)
        try:
            Receiver(keys.current, keys.next).verify(
                signature=signature, body=call.body.decode(), url=url
            )
        except SignatureError:
            return False
        return True

    def delivered(self, path, body):
        earlier = len(self.destination.at(path))
        self.client.message.publish(url=self.destination.url(path), body=body)
        return self.destination.wait_for(path, earlier + 1)[-1]

    def test_receivers_verify_before_across_and_after_a_rotation_and_two_behind_no_more(self):
        path, queued, retried = somewhere(), somewhere(), somewhere()
        first = self.client.signing_key.get()
        self.assertTrue(self.accepts(first, self.delivered(path, "before")))

        # Published before the rotation: one is sent after it, one is under way and sent again.
        queue = f"q-{uuid.uuid4()}"
        self.client.queue.upsert(queue, paused=True)
        self.client.message.enqueue(queue=queue, url=self.destination.url(queued), body="queued")
        rotated = threading.Event()
        url = self.destination.url(retried, (500, "", {}, rotated.wait), (200,))
        self.client.message.publish(url=url, body="retried", retry_delay="10")
        self.destination.wait_for(retried, 1)

        second = self.client.signing_key.rotate()
        self.assertEqual(second.current, first.next)
        self.assertNotIn(second.next, (first.current, first.next))
        self.assertEqual(self.client.signing_key.get(), second)
        rotated.set()
        self.client.queue.resume(queue)
        early, late = self.destination.wait_for(retried, 2)
        self.assertTrue(self.accepts(first, early))
        self.assertFalse(self.accepts(second, early))
        from_queue = self.destination.wait_for(queued, 1)[0]
        for call in (late, from_queue, self.delivered(path, "after")):
            self.assertTrue(self.accepts(first, call))
            self.assertTrue(self.accepts(second, call))

        third = self.client.signing_key.rotate()
        call = self.delivered(path, "after both")
        accepted = [self.accepts(keys, call) for keys in (first, second, third)]
        self.assertEqual(accepted, [False, True, True])

        self.server.restart()
        self.assertEqual(self.client.signing_key.get(), third)
        self.assertTrue(self.accepts(second, self.delivered(path, "after a restart")))


if __name__ == "__main__":
    unittest.main()
