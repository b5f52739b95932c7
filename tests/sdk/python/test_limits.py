"""What limits the calls of messages, as their destination sees it, and what a bulk action must not
do."""

import threading
import time
import unittest
import uuid

from destination import now_ms, somewhere, until
from server import Server, ServerTest


class LimitsTest(ServerTest):
    def test_a_filter_that_is_none_is_refused_and_deletes_redrives_and_cancels_nothing(self):
        label = str(uuid.uuid4())
        url = self.destination.url(somewhere(), (500,))
        dead = self.client.message.publish(url=url, retries=0, label=label)
        self.wait_for_letter(dead.message_id)
        waiting = self.client.message.publish(url=url, delay="1h", label=label)
        # The SDK has no methods that act on a filter.
        actions = (("DELETE", "/v2/dlq"), ("POST", "/v2/dlq/retry"), ("DELETE", "/v2/messages"))
        for method, path in actions:
            with self.assert_refused(400, "labeel"):
                self.client.http.request(path=path, method=method, params={"labeel": label})
        self.assertIsNotNone(self.letter_of(dead.message_id))
        self.assertEqual(self.client.message.get(waiting.message_id).label, label)
        self.client.message.cancel(waiting.message_id)

    def test_a_flow_control_key_lets_as_many_calls_begin_as_it_says_and_waits_while_paused(self):
        key, path = f"k-{uuid.uuid4()}", somewhere()
        keys = self.client.flow_control
        limits = {"key": key, "rate": 2, "period": "1h"}
        message = {"url": self.destination.url(path), "flow_control": limits}
        for _ in range(3):
            self.client.message.publish(**message)
        self.destination.wait_for(path, 2)
        shown = keys.get(key)
        counts = (shown.rate_max, shown.rate_count, shown.rate_period, shown.wait_list_size)
        self.assertEqual(counts, (2, 2, 3600, 1))
        keys.reset_rate(key)
        self.destination.wait_for(path, 3)

        keys.pause(key)
        keys.pin(key, {"parallelism": 7, "rate": 100, "period": 60})
        self.client.message.publish(**message)
        shown = keys.get(key)
        self.assertTrue(shown.is_paused and shown.is_pinned_rate and shown.is_pinned_parallelism)
        self.assertEqual((shown.rate_max, shown.parallelism_max, shown.wait_list_size), (100, 7, 1))
        self.assertEqual(len(self.destination.at(path)), 3)
        keys.resume(key)
        self.destination.wait_for(path, 4)
        keys.unpin(key, {"parallelism": True, "rate": True})
        self.assertFalse(keys.get(key).is_pinned_rate)
        self.assertGreater(keys.get_global_parallelism().parallelism_max, 0)

    def test_no_more_calls_of_a_key_are_under_way_at_once_than_its_parallelism(self):
        key, path, opened = f"k-{uuid.uuid4()}", somewhere(), threading.Event()

        def held():
            opened.wait()
            time.sleep(0.05)

        url = self.destination.url(path, (200, "", {}, held))
        for _ in range(6):
            self.client.message.publish(url=url, flow_control={"key": key, "parallelism": 2})
        self.destination.wait_for(path, 2)
        shown = self.client.flow_control.get(key)
        counts = (shown.parallelism_max, shown.parallelism_count, shown.wait_list_size)
        self.assertEqual(counts, (2, 2, 4))
        opened.set()
        calls = self.destination.wait_for(path, 6)
        self.assertEqual(max(call.open for call in calls), 2)

    def test_no_more_calls_of_a_key_come_in_a_period_than_its_rate(self):
        path, rate, period_ms = somewhere(), 3, 1_000
        limits = {"key": f"k-{uuid.uuid4()}", "rate": rate, "period": "1s"}
        message = {"url": self.destination.url(path), "flow_control": limits}
        start_ms = now_ms()
        self.client.message.batch([message] * 8)
        for index, call in enumerate(self.destination.wait_for(path, 8)):
            self.assertGreaterEqual(call.at_ms - start_ms, index // rate * period_ms, index)

    def test_a_queue_keeps_its_order_while_its_messages_fail_and_goes_on_after_one_that_dies(self):
        path, queue = somewhere(), f"q-{uuid.uuid4()}"
        url = self.destination.url(path, (500,), (500,), (200,), (500,), (200,))
        enqueue = self.client.message.enqueue
        enqueue(queue=queue, url=url, body="patient", retry_delay="200")
        dead = enqueue(queue=queue, url=url, body="dead", retries=0)
        enqueue(queue=queue, url=url, body="late", retry_delay="200")
        calls = self.destination.wait_for(path, 5)
        seen = [f"{call.body.decode()} {call.headers['Upstash-Retried']}" for call in calls]
        self.assertEqual(seen, ["patient 0", "patient 1", "patient 2", "dead 0", "late 0"])
        for earlier, later in (calls[0:2], calls[1:3]):
            self.assertGreaterEqual(later.at_ms - earlier.at_ms, 200)
        self.assertEqual(self.wait_for_letter(dead.message_id).queue, queue)
        self.client.queue.delete(queue)

    def test_a_deduplication_id_is_free_again_when_the_window_is_over(self):
        window_ms = 5_000
        own = Server(HOOKSTASH_DEDUP_WINDOW=f"{window_ms}ms")
        self.addCleanup(own.end)
        path = somewhere()
        message = {"url": self.destination.url(path), "deduplication_id": "again"}
        start_ms = now_ms()
        first = own.client.message.publish(**message)
        duplicate = own.client.message.publish(**message)
        self.assertEqual((duplicate.message_id, duplicate.deduplicated), (first.message_id, True))

        def published_anew():
            answer = own.client.message.publish(**message)
            return None if answer.deduplicated else answer

        # Duplicates do not make it longer.
        second = until(published_anew, "the end of the window")
        self.assertGreaterEqual(now_ms() - start_ms, window_ms)
        calls = self.destination.wait_for(path, 2)
        ids = [call.headers["Upstash-Message-Id"] for call in calls]
        self.assertEqual(ids, [first.message_id, second.message_id])


if __name__ == "__main__":
    unittest.main()
