"""The official Python SDK publishes to a server, receives the delivery and verifies it."""

import asyncio
import base64
import contextlib
import dataclasses
import io
import json
import time
import unittest
import uuid

from destination import somewhere, until
from qstash import AsyncQStash, QStash, Receiver
from qstash.errors import SignatureError
from qstash.log import LogState
from qstash.message import FlowControl
from server import ServerTest

PAGES_MAX = 1_000


class SdkTest(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        keys = cls.server.client.signing_key.get()
        cls.receiver = Receiver(keys.current, keys.next)

    def verify(self, call, url=None):
        signature = call.headers["Upstash-Signature"]
        self.receiver.verify(signature=signature, body=call.body.decode(), url=url)

    def redrive(self, dlq_id):
        """The SDK has no method for it."""
        path = f"/v2/dlq/retry/{dlq_id}"
        return self.client.http.request(path=path, method="POST")["messageId"]

    def pages(self, page_after):
        """All pages, from the first one to the one without a cursor."""
        cursor = None
        for _ in range(PAGES_MAX):
            page = page_after(cursor)
            yield page
            cursor = page.cursor
            if cursor is None:
                return
        self.fail(f"no end after {PAGES_MAX} pages")

    def test_a_schedule_is_created_shown_paused_resumed_and_deleted(self):
        schedule_id = self.client.schedule.create_json(
            destination="https://example.com/scheduled",
            cron="1 1 1 1 1",
            body={"ex_key": "ex_value"},
            retry_delay="5000 * retried",
            label="scheduled",
            flow_control=FlowControl(key="flow-key", parallelism=2),
        )
        shown = self.client.schedule.get(schedule_id)
        self.assertEqual(shown.schedule_id, schedule_id)
        self.assertEqual(shown.cron, "1 1 1 1 1")
        self.assertEqual(shown.destination, "https://example.com/scheduled")
        self.assertEqual(shown.body, '{"ex_key": "ex_value"}')
        self.assertEqual(shown.retry_delay_expression, "5000 * retried")
        self.assertEqual(shown.label, "scheduled")
        limits = shown.flow_control
        self.assertEqual((limits.key, limits.parallelism, limits.rate), ("flow-key", 2, None))
        self.assertEqual(limits.period, 1)
        self.assertIs(shown.paused, False)
        self.assertIn(schedule_id, [one.schedule_id for one in self.client.schedule.list()])
        self.client.schedule.pause(schedule_id)
        self.assertIs(self.client.schedule.get(schedule_id).paused, True)
        self.client.schedule.resume(schedule_id)
        self.assertIs(self.client.schedule.get(schedule_id).paused, False)
        self.client.schedule.delete(schedule_id)
        with self.assert_refused(404, f"schedule {schedule_id} not found"):
            self.client.schedule.get(schedule_id)
        queued = self.client.schedule.create(
            destination="https://example.com/queued",
            cron="CRON_TZ=America/New_York 0 4 1 1 *",
            queue="schedule-queue",
        )
        self.assertEqual(self.client.schedule.get(queued).queue, "schedule-queue")
        self.client.schedule.delete(queued)
        with self.assert_refused(400, "Upstash-Cron: it never fires"):
            self.client.schedule.create(destination="https://example.com", cron="0 0 30 2 *")

    def test_callbacks_tell_the_attempt_and_the_death_signed_for_their_own_url(self):
        url = self.destination.url(somewhere(), (500, "no"))
        each, last = somewhere(), somewhere()
        published = self.client.message.publish_json(
            url=url,
            body={"keep": True},
            retries=0,
            callback=self.destination.url(each),
            failure_callback=self.destination.url(last),
        )
        stories = []
        for path in (each, last):
            request = self.destination.wait_for(path, 1)[0]
            self.verify(request, self.destination.url(path))
            self.assertEqual(request.headers["Content-Type"], "application/json")
            stories.append(json.loads(request.body))
        for story in stories:
            self.assertEqual(story["sourceMessageId"], published.message_id)
            self.assertEqual((story["status"], story["retried"], story["maxRetries"]), (500, 0, 0))
            self.assertEqual(base64.b64decode(story["body"], validate=True), b"no")
            source = base64.b64decode(story["sourceBody"], validate=True)
            self.assertEqual(json.loads(source), {"keep": True})
        told, death = stories
        letter = self.wait_for_letter(published.message_id)
        self.assertNotIn("dlqId", told)
        self.assertEqual(death["dlqId"], letter.dlq_id)
        self.assertEqual(letter.failure_callback, self.destination.url(last))

    def test_publish_json_is_delivered_signed_with_its_headers(self):
        path = somewhere() + "?a=1&b=two%20words"
        url = self.destination.url(path)
        published = self.client.message.publish_json(
            url=url, body={"hello": "wörld"}, headers={"X-Agent-Step": "7"}
        )
        request = self.destination.wait_for(path, 1)[0]
        headers = request.headers
        self.assertEqual(request.method, "POST")
        self.assertEqual(json.loads(request.body), {"hello": "wörld"})
        self.assertEqual(headers["Content-Type"], "application/json")
        self.assertEqual(headers["X-Agent-Step"], "7")
        self.assertEqual(headers["User-Agent"], "Upstash-QStash")
        self.assertEqual(headers["Upstash-Message-Id"], published.message_id)
        self.assertEqual(headers["Upstash-Retried"], "0")
        self.assertIsNone(headers["Upstash-Telemetry-Sdk"])
        self.verify(request)
        self.verify(request, url)
        with self.assertRaises(SignatureError):
            self.verify(request, url + "/")
        with self.assertRaises(SignatureError):
            self.verify(dataclasses.replace(request, body=request.body + b" "))

    def test_every_method_and_raw_bytes_arrive_as_they_were_published(self):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            path = somewhere()
            self.client.message.publish(url=self.destination.url(path), method=method)
            request = self.destination.wait_for(path, 1)[0]
            self.assertEqual(request.method, method)
            self.verify(request, self.destination.url(path))
        path = somewhere()
        body = bytes([0, 255, 13, 10, 128])
        self.client.message.publish(url=self.destination.url(path), body=body)
        self.assertEqual(self.destination.wait_for(path, 1)[0].body, body)

    def test_a_failing_destination_is_tried_again_under_one_id(self):
        path = somewhere()
        url = self.destination.url(path, (500, ""), (503, ""), (200, ""))
        published = self.client.message.publish_json(url=url, body={"n": 1}, retry_delay="50")
        requests = self.destination.wait_for(path, 3)
        retried = [request.headers["Upstash-Retried"] for request in requests]
        self.assertEqual(retried, ["0", "1", "2"])
        for request in requests:
            self.assertEqual(request.headers["Upstash-Message-Id"], published.message_id)
            self.verify(request, url)

    def test_a_message_without_retries_dies_and_can_be_redriven(self):
        path = somewhere()
        url = self.destination.url(path, (404, "404 Not Found"), (404, ""), (200, ""))
        published = self.client.message.publish_json(url=url, body={"a": 1}, retries=0)
        listed = self.wait_for_letter(published.message_id)
        letter = self.client.dlq.get(listed.dlq_id)
        self.assertEqual(letter.response_status, 404)
        self.assertEqual(letter.response_body, "404 Not Found")
        self.assertEqual(letter.body, '{"a": 1}')
        self.assertEqual(letter.url, url)
        for attempt in (2, 3):
            new_id = self.redrive(letter.dlq_id)
            self.assertNotEqual(new_id, letter.message_id)
            requests = self.destination.wait_for(path, attempt)
            self.assertEqual(requests[-1].headers["Upstash-Message-Id"], new_id)
            if attempt == 2:
                letter = self.wait_for_letter(new_id)
        with self.assert_refused(404, "not found"):
            self.client.dlq.get(published.message_id)

    def test_dead_letters_are_listed_by_pages_and_deleted(self):
        url = self.destination.url("/always-410", (410, ""))
        ids = {self.client.message.publish(url=url, retries=0).message_id for _ in range(3)}
        until(lambda: all(self.letter_of(id) for id in ids), "three dead letters")
        seen = []
        for page in self.pages(lambda cursor: self.client.dlq.list(cursor=cursor, count=2)):
            self.assertLessEqual(len(page.messages), 2)
            seen.extend(letter.dlq_id for letter in page.messages)
        self.assertEqual(len(seen), len(set(seen)))
        self.assertLessEqual(ids, set(seen))
        for id in ids:
            self.client.dlq.delete(id)
            with self.assert_refused(404, "not found"):
                self.client.dlq.delete(id)

    def test_dead_letters_are_filtered_and_deleted_many_at_once(self):
        url = self.destination.url(somewhere(), (500, "no"))
        label = str(uuid.uuid4())

        def letters(**more):
            return self.client.dlq.list(filter={"label": label, **more}).messages

        for _ in range(3):
            self.client.message.publish(url=url, retries=0, label=label)
        until(lambda: len(letters()) == 3, "three dead letters")
        self.assertEqual(len(letters(url=url, response_status=500)), 3)
        self.assertEqual(letters(response_status=404), [])
        self.assertEqual(letters(to_time=1), [])
        ids = [letter.dlq_id for letter in letters()]
        self.assertEqual(self.client.dlq.delete_many([]), 0)
        self.assertEqual(self.client.dlq.delete_many(ids[:2]), 2)
        self.assertEqual([letter.dlq_id for letter in letters()], ids[2:])
        self.assertEqual(self.client.dlq.delete_many(ids), 1)

    def test_several_messages_are_cancelled(self):
        path = somewhere()
        publish = self.client.message.publish
        ids = [publish(url=self.destination.url(path), delay="3s").message_id for _ in range(3)]
        self.assertEqual(self.client.message.cancel_many([]), 0)
        self.assertEqual(self.client.message.cancel_many(ids[:2] + ["msg_unknown"]), 2)
        self.assertEqual(self.client.message.cancel_many(ids), 1)
        time.sleep(3.5)
        self.assertEqual(self.destination.at(path), [])

    def test_what_happened_to_a_message_is_in_the_logs(self):
        label = str(uuid.uuid4())
        url = self.destination.url(somewhere(), (503, ""), (200, ""))
        published = self.client.message.publish(url=url, label=label, retry_delay="50", retries=2)
        story = [LogState.DELIVERED, LogState.RETRY, LogState.ERROR, LogState.CREATED]

        def page(**options):
            # The SDK prints every answer.
            with contextlib.redirect_stdout(io.StringIO()):
                return self.client.log.list(**options)

        def logs(**filter):
            return page(filter=filter).logs

        until(lambda: len(logs(label=label)) == 4, "the story of a message")
        for found in (logs(label=label), logs(message_ids=[published.message_id])):
            self.assertEqual([log.state for log in found], story)
            for log in found:
                self.assertEqual(log.message_id, published.message_id)
                self.assertEqual((log.url, log.label, log.max_retries), (url, label, 2))
                self.assertEqual(log.retry_delay_expression, "50")
        self.assertEqual(found[2].response_status, 503)
        self.assertEqual(found[1].next_delivery_time, found[1].time + 50)
        retries = logs(label=label, state=LogState.RETRY)
        self.assertEqual([log.state for log in retries], [LogState.RETRY])
        self.assertEqual(len(logs(label=label, state=LogState.IN_PROGRESS)), 2)
        self.assertEqual(logs(label=label, to_time=1), [])
        seen = []
        filter = {"label": label}
        for one in self.pages(lambda cursor: page(cursor=cursor, count=1, filter=filter)):
            self.assertLessEqual(len(one.logs), 1)
            seen.extend(log.state for log in one.logs)
        self.assertEqual(seen, story)

    def test_a_deduplication_id_is_delivered_once(self):
        path = somewhere()
        url = self.destination.url(path)
        given = {"url": url, "body": "x", "deduplication_id": str(uuid.uuid4())}
        first = self.client.message.publish(**given)
        second = self.client.message.publish(**given)
        self.assertFalse(first.deduplicated)
        self.assertTrue(second.deduplicated)
        self.assertEqual(first.message_id, second.message_id)
        by_content = {"url": url, "body": path, "content_based_deduplication": True}
        self.client.message.publish(**by_content)
        self.assertTrue(self.client.message.publish(**by_content).deduplicated)
        self.destination.wait_for(path, 2)
        time.sleep(0.2)
        self.assertEqual(len(self.destination.at(path)), 2)
        with self.assert_refused(400, "DeduplicationId cannot contain ':'"):
            self.client.message.publish(url=url, deduplication_id="a:b")

    def test_a_delayed_message_can_be_read_and_cancelled(self):
        path = somewhere()
        published = self.client.message.publish_json(
            url=self.destination.url(path),
            method="PUT",
            body={"a": 1},
            headers={"test-header": "value"},
            delay="2s",
            retries=7,
            retry_delay="1000 * (1 + retried)",
            label="delayed",
        )
        message = self.client.message.get(published.message_id)
        self.assertEqual(message.url, self.destination.url(path))
        self.assertEqual(message.method, "PUT")
        self.assertEqual(message.body, '{"a": 1}')
        self.assertEqual(message.max_retries, 7)
        self.assertEqual(message.retry_delay_expression, "1000 * (1 + retried)")
        self.assertEqual(message.label, "delayed")
        self.assertEqual(message.caller_ip, "127.0.0.1")
        self.assertEqual(message.headers["Test-Header"], ["value"])
        self.assertIsNone(message.queue)
        self.assertLess(abs(message.not_before - message.created_at - 2000), 1000)
        self.client.message.cancel(published.message_id)
        with self.assert_refused(404, r"message msg_\w+ not found"):
            self.client.message.get(published.message_id)
        with self.assert_refused(404, "not found"):
            self.client.message.cancel(published.message_id)
        time.sleep(2.5)
        self.assertEqual(self.destination.at(path), [])

    def test_a_queue_delivers_in_order_and_waits_while_it_is_paused(self):
        path, name = somewhere(), f"q-{uuid.uuid4()}"
        url = self.destination.url(path, (500, ""), (200, ""))
        self.client.queue.upsert(name, parallelism=1, paused=True)
        for number in range(4):
            self.client.message.enqueue_json(
                queue=name, url=url, body={"n": number}, retry_delay="50"
            )
        queue = self.client.queue.get(name)
        self.assertEqual(
            (queue.name, queue.parallelism, queue.lag, queue.paused), (name, 1, 4, True)
        )
        self.assertIn(name, [queue.name for queue in self.client.queue.list()])
        time.sleep(0.3)
        self.assertEqual(self.destination.at(path), [])
        self.client.queue.resume(name)
        requests = self.destination.wait_for(path, 5)
        self.assertEqual([json.loads(request.body)["n"] for request in requests], [0, 0, 1, 2, 3])
        self.client.queue.pause(name)
        self.assertTrue(self.client.queue.get(name).paused)
        self.client.queue.delete(name)
        self.client.queue.delete(name)
        with self.assert_refused(404, "not found"):
            self.client.queue.get(name)

    def test_a_url_group_delivers_to_each_of_its_endpoints(self):
        name, paths = f"g-{uuid.uuid4()}", [somewhere(), somewhere()]
        urls = [self.destination.url(path) for path in paths]
        self.client.url_group.delete(name)
        self.client.url_group.upsert_endpoints(
            name, [{"url": urls[0]}, {"url": urls[1], "name": "two"}]
        )
        group = self.client.url_group.get(name)
        self.assertEqual([(e.url, e.name) for e in group.endpoints], [(urls[0], None), (urls[1], "two")])
        self.assertIn(name, [group.name for group in self.client.url_group.list()])
        published = self.client.message.publish_json(url_group=name, body={"a": 1})
        self.assertEqual([one.url for one in published], urls)
        for path, one in zip(paths, published):
            request = self.destination.wait_for(path, 1)[0]
            self.assertEqual(request.headers["Upstash-Message-Id"], one.message_id)
            self.assertEqual(request.headers["Upstash-Topic-Name"], name)
            self.verify(request)
        self.client.url_group.remove_endpoints(name, [{"name": "two"}])
        self.assertEqual(len(self.client.url_group.get(name).endpoints), 1)
        self.client.url_group.remove_endpoints(name, [{"url": urls[0]}])
        with self.assert_refused(404, "not found"):
            self.client.url_group.get(name)

    def test_a_batch_takes_urls_queues_and_groups(self):
        name, first, second = f"g-{uuid.uuid4()}", somewhere(), somewhere()
        self.client.url_group.upsert_endpoints(name, [{"url": self.destination.url(second)}])
        queue, dedup = f"q-{uuid.uuid4()}", str(uuid.uuid4())
        url = self.destination.url(first)
        answers = self.client.message.batch_json(
            [
                {"url": url, "queue": queue, "body": {"n": 1}, "headers": {"X-N": "1"}},
                {"url_group": name, "body": {"n": 2}},
                {"url": url, "queue": queue, "deduplication_id": dedup},
                {"url": url, "queue": queue, "deduplication_id": dedup},
            ]
        )
        self.assertEqual([type(answer) for answer in answers].count(list), 1)
        self.assertEqual(answers[1][0].url, self.destination.url(second))
        self.assertTrue(answers[3].deduplicated)
        self.assertEqual(answers[3].message_id, answers[2].message_id)
        requests = self.destination.wait_for(first, 2)
        self.assertEqual([request.body for request in requests], [b'{"n": 1}', b"null"])
        self.assertEqual(requests[0].headers["X-N"], "1")
        self.destination.wait_for(second, 1)
        self.client.url_group.delete(name)
        self.client.queue.delete(queue)

    def test_refusals_reach_the_sdk_with_their_status_and_text(self):
        url = self.destination.url("/")
        with self.assert_refused(400, "endpoint has invalid scheme, add http:// or https://"):
            self.client.message.publish(url_group="no-such-group", body="x")
        with self.assert_refused(400, "Upstash-Delay"):
            self.client.message.publish(url=url, delay="400d")
        with self.assert_refused(413, "quota maxMessageSize exceeded"):
            self.client.message.publish(url=url, body="x" * (10 * 1024 * 1024 + 1))
        with self.assert_refused(401, "unable to authenticate: invalid token"):
            QStash("wrong", base_url=self.server.url).message.publish(url=url, body="x")

    def test_the_async_client_works_alike(self):
        path = somewhere()
        url = self.destination.url(path)

        async def publish():
            client = AsyncQStash(self.server.token, base_url=self.server.url)
            published = await client.message.publish_json(url=url, body={"n": 1})
            message = await client.message.get(published.message_id)
            return published.message_id, message.message_id

        published, read = asyncio.run(publish())
        self.assertEqual(published, read)
        self.verify(self.destination.wait_for(path, 1)[0], url)


if __name__ == "__main__":
    unittest.main()
