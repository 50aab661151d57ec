"""Tasks in asyncio loops, and in loops of one's own over the event descriptor."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import unittest

from common import BLOCK, LIMIT_MS, SHARD, StoreCase, block_id, content

import kvpath
from kvpath import Shard


class Asyncio(StoreCase):
    def test_many_tasks_at_a_time(self) -> None:
        count = 64

        async def main() -> None:
            async with kvpath.open(self.config()) as store:
                await asyncio.gather(
                    *(_wait(store.dump_block(block_id(it), content(it))) for it in range(count))
                )
                targets = [bytearray(SHARD) for _ in range(count * 4)]
                loads = [
                    store.load([Shard(block_id(at // 4), at % 4, target)])
                    for at, target in enumerate(targets)
                ]
                for load in loads:
                    await load
                expected = b"".join(content(it) for it in range(count))
                self.assertEqual(b"".join(targets), expected)
                self.assertEqual(store._core._running, {})
                self.assertEqual(store._core.events._readers, {})
                self.assertEqual(store._core.events._waiting, {})
            self.assertTrue(store.closed)

        asyncio.run(asyncio.wait_for(main(), LIMIT_MS / 1000))

    def test_errors_and_awaiting_again(self) -> None:
        async def main() -> None:
            store = self.open()
            task = store.load_block(block_id(1), bytearray(BLOCK))
            for _ in range(2):
                with self.assertRaises(kvpath.NotFoundError):
                    await task
            self.assertEqual(len(task.wait_results()), 4)
            await store.load([])
            task = store.load([])
            await store.aclose()
            with self.assertRaises(kvpath.ClosedError):
                await task

        asyncio.run(asyncio.wait_for(main(), LIMIT_MS / 1000))

    def test_loops_in_several_threads_share_a_store(self) -> None:
        store = self.open()
        data = self.stored(store, 1)
        failures: list[BaseException] = []

        async def main() -> None:
            for _ in range(50):
                target = bytearray(BLOCK)
                await asyncio.wait_for(_wait(store.load_block(block_id(1), target)), 60)
                assert target == data

        def run() -> None:
            try:
                asyncio.run(main())
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(50):  # and one that waits without a loop
            store.load_block(block_id(1), bytearray(BLOCK)).wait()
        for thread in threads:
            thread.join(LIMIT_MS / 1000)
        self.assertEqual(failures, [])
        self.assertEqual(store._core._running, {})

    def test_descriptors_are_given_back(self) -> None:
        store = self.open()
        self.stored(store, 1)
        store.event_fd()

        async def main() -> None:
            for _ in range(20):
                await store.load([Shard(block_id(1), 0, bytearray(SHARD))])

        asyncio.run(main())
        before = len(os.listdir("/proc/self/fd"))
        asyncio.run(main())
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before)

    def test_a_loop_of_ones_own(self) -> None:
        store = self.open()
        tasks = {}
        for number in range(8):
            task = store.dump_block(block_id(number), content(number))
            tasks[task.handle] = task
        poll = select.poll()
        poll.register(store.event_fd(), select.POLLIN)
        while tasks:
            self.assertNotEqual(poll.poll(LIMIT_MS), [])
            for handle in store.finished(limit=3):
                tasks.pop(handle).wait(0)
        self.assertEqual(poll.poll(0), [])


async def _wait(task: kvpath.Task) -> None:
    await task


if __name__ == "__main__":
    unittest.main()
