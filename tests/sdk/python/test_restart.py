"""What outlives the server: each test has one of its own, kills it and starts another on its
store."""

import contextlib
import io
import unittest
import uuid

from destination import Destination, somewhere, until
from qstash.log import LogState
from server import Server


class RestartTest(unittest.TestCase):
    def setUp(self):
        self.destination = Destination()
        self.addCleanup(self.destination.stop)
        self.server = Server()
        self.addCleanup(self.server.end)

    @property
    def client(self):
        return self.server.client

    def logs(self, **filter):
        # The SDK prints every answer.
        with contextlib.redirect_stdout(io.StringIO()):
            return self.client.log.list(filter=filter).logs

    def wait_for_deliveries(self, label, count):
        """Until all of them are known to be delivered: nothing is sent after that."""
        until(
            lambda: len(self.logs(label=label, state=LogState.DELIVERED)) == count,
            f"{count} deliveries",
        )

    def bodies(self, path):
        return [call.body.decode() for call in self.destination.at(path)]

    def test_messages_that_waited_are_there_and_each_is_delivered_once(self):
        delayed, queued, held, failed = (somewhere() for _ in range(4))
        label, queue, key = str(uuid.uuid4()), f"q-{uuid.uuid4()}", f"k-{uuid.uuid4()}"
        publish = self.client.message.publish
        self.client.queue.upsert(queue, parallelism=1, paused=True)
        for body in "123":
            self.client.message.enqueue(
                queue=queue, url=self.destination.url(queued), body=body, label=label
            )
        limited = {
            "url": self.destination.url(held),
            "flow_control": {"key": key, "parallelism": 1, "rate": 100},
            "label": label,
        }
        publish(**limited, body="first")
        self.wait_for_deliveries(label, 1)
        self.client.flow_control.pause(key)
        for body in "xy":
            publish(**limited, body=body)
        retried = publish(
            url=self.destination.url(failed, (500,), (200,)),
            retry_delay="5000",
            deduplication_id=label,
            label=label,
        )
        until(lambda: self.logs(label=label, state=LogState.RETRY), "a retry")
        url = self.destination.url(delayed)
        later = [publish(url=url, body=body, delay="4s", label=label) for body in "abcde"]

        self.server.restart()
        for published in later:
            self.assertEqual(self.client.message.get(published.message_id).url, url)
        shown = self.client.queue.get(queue)
        self.assertEqual((shown.lag, shown.paused, shown.parallelism), (3, True, 1))
        limits = self.client.flow_control.get(key)
        self.assertEqual((limits.is_paused, limits.wait_list_size, limits.rate_max), (True, 2, 100))
        again = self.client.message.publish(url=url, deduplication_id=label)
        self.assertEqual((again.message_id, again.deduplicated), (retried.message_id, True))
        self.client.queue.resume(queue)
        self.client.flow_control.resume(key)

        self.wait_for_deliveries(label, 5 + 3 + 3 + 1)
        self.assertEqual(sorted(self.bodies(delayed)), list("abcde"))
        self.assertEqual(self.bodies(queued), list("123"))
        self.assertEqual(self.bodies(held), ["first", "x", "y"])
        attempts = [call.headers["Upstash-Retried"] for call in self.destination.at(failed)]
        self.assertEqual(attempts, ["0", "1"])

    def test_dead_letters_url_groups_and_logs_are_there(self):
        group, label, member = f"g-{uuid.uuid4()}", str(uuid.uuid4()), somewhere()
        url = self.destination.url(somewhere(), (500, "why"))
        self.client.message.publish(
            url=url, body="dead", headers={"X-Kept": "yes"}, retries=0, label=label
        )

        def letters():
            return self.client.dlq.list(filter={"label": label}).messages

        before = until(letters, "a dead letter")
        story = self.logs(label=label)
        self.client.url_group.upsert_endpoints(
            group, [{"url": self.destination.url(member), "name": "one"}]
        )
        self.server.restart()
        self.assertEqual(letters(), before)
        self.assertEqual((before[0].body, before[0].response_body), ("dead", "why"))
        self.assertEqual(before[0].headers["X-Kept"], ["yes"])
        self.assertEqual(self.logs(label=label), story)
        self.client.message.publish(url_group=group, body="to all")
        self.destination.wait_for(member, 1)
        self.client.dlq.delete(before[0].dlq_id)
        self.assertEqual(letters(), [])

    def test_schedules_are_there_with_their_next_times(self):
        url = self.destination.url(somewhere())
        once_a_year = self.client.schedule.create(
            destination=url, cron="CRON_TZ=Europe/Berlin 30 4 1 1 *", body="due", retries=7
        )
        paused = self.client.schedule.create(destination=url, cron="0 0 1 1 *", label="paused")
        self.client.schedule.pause(paused)
        before = {one.schedule_id: one for one in self.client.schedule.list()}
        self.assertEqual(before.keys(), {once_a_year, paused})
        self.server.restart()
        after = {one.schedule_id: one for one in self.client.schedule.list()}
        self.assertEqual(after, before)
        self.assertGreater(after[once_a_year].next_schedule_time, 0)
        self.client.schedule.resume(paused)
        self.assertGreater(self.client.schedule.get(paused).next_schedule_time, 0)


if __name__ == "__main__":
    unittest.main()
