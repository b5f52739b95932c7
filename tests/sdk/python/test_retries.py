"""When a message is sent again, and what ends it at once."""

import unittest

from destination import somewhere
from server import ServerTest

HOUR_MS = "3600000"


class RetriesTest(ServerTest):
    def test_each_attempt_waits_as_long_as_the_retry_delay_says(self):
        path = somewhere()
        published = self.client.message.publish(
            url=self.destination.url(path, (500,)), retries=2, retry_delay="300 * (1 + retried)"
        )
        first, second, third = self.destination.wait_for(path, 3)
        self.assertGreaterEqual(second.at_ms - first.at_ms, 300)
        self.assertGreaterEqual(third.at_ms - second.at_ms, 600)
        self.wait_for_letter(published.message_id)
        self.assertEqual(len(self.destination.at(path)), 3)

    def test_a_destination_that_says_when_the_next_attempt_may_come_is_obeyed(self):
        hints = (
            ({"Retry-After": "0"}, 0),
            ({"Retry-After": "1"}, 1_000),
            ({"X-RateLimit-Reset": "0.5s"}, 500),
            ({"X-RateLimit-Reset-Requests": "600ms"}, 600),
            ({"Retry-After": "1", "X-RateLimit-Reset-Tokens": "1h"}, 1_000),
        )
        paths = [somewhere() for _ in hints]
        for path, (headers, _) in zip(paths, hints):
            url = self.destination.url(path, (429, "", headers), (200,))
            self.client.message.publish(url=url, retry_delay=HOUR_MS)
        for path, (headers, pause_ms) in zip(paths, hints):
            first, second = self.destination.wait_for(path, 2)
            self.assertGreaterEqual(second.at_ms - first.at_ms, pause_ms, headers)

    def test_489_with_its_header_and_410_end_a_message_at_once_489_alone_does_not(self):
        final = {"Upstash-NonRetryable-Error": "true"}
        for answer in ((489, "no", final), (410, "no")):
            path = somewhere()
            url = self.destination.url(path, answer)
            published = self.client.message.publish(url=url, retries=3, retry_delay="10")
            letter = self.wait_for_letter(published.message_id)
            self.assertEqual((letter.response_status, letter.response_body), answer[:2])
            self.assertEqual(len(self.destination.at(path)), 1)
        path = somewhere()
        url = self.destination.url(path, (489,), (200,))
        self.client.message.publish(url=url, retries=1, retry_delay="10")
        self.destination.wait_for(path, 2)


if __name__ == "__main__":
    unittest.main()
