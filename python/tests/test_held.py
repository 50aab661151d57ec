"""Tasks whose storage hangs on purpose: who owns the memory, who waits, and who may end.

Runs on the build of the library that has faults on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import select
import threading
import unittest
import warnings
import weakref

from common import BLOCK, LIMIT_MS, SHARD, Faults, StoreCase, block_id, close_quietly, content

import kvpath
from kvpath import Shard, Status, _library


@unittest.skipUnless(
    hasattr(_library.library, "kvpath_fault_add"), "not the library with faults on purpose"
)
class Held(StoreCase):
    def hanging(self, kept: bool = True, **more: object) -> tuple[kvpath.Store, Faults]:
        """A store with block 1, on which the next read hangs. kept: its end is the test's."""
        store = kvpath.open(self.config(timeout_ms=0, **more))
        self.addCleanup(close_quietly, store if kept else store._core)
        self.stored(store, 1)
        faults = Faults(store)
        self.addCleanup(suppress_closed, faults)
        faults.hang("read")
        return store, faults

    def test_memory_of_a_running_task_is_exported(self) -> None:
        store, faults = self.hanging()
        target = bytearray(BLOCK)
        task = store.load_block(block_id(1), target)
        faults.wait_held()
        self.assertFalse(self.resizable(target))
        self.assertFalse(task.check())
        for limit_ms in (0, 1, 20.5):
            with self.assertRaises(kvpath.RetryError):
                task.wait(limit_ms)
        faults.let_go()
        task.wait()
        self.assertTrue(self.resizable(target))
        self.assertEqual(target, content(1))

    def test_dropped_task_keeps_its_memory_until_its_end(self) -> None:
        for drop in ("del", "forget"):
            store, faults = self.hanging()
            target = bytearray(BLOCK)
            task = store.load_block(block_id(1), target)
            faults.wait_held()
            if drop == "forget":
                task.forget()
                with self.assertRaises(kvpath.NotFoundError):
                    task.wait()
            gone = weakref.ref(task)
            del task
            gc.collect()
            self.assertIsNone(gone())
            store.load([]).wait()  # a chance to give it back too early
            self.assertFalse(self.resizable(target), drop)
            faults.let_go()
            wait_readable(store)
            store.load([]).wait()
            self.assertTrue(self.resizable(target), drop)
            self.assertEqual(target, content(1))
            store.close()

    def test_memory_lives_when_nobody_has_it(self) -> None:
        store, faults = self.hanging()

        class Memory(bytearray):
            """Can be referred to weakly."""

        target = Memory(BLOCK)
        gone = weakref.ref(target)
        store.load_block(block_id(1), target)
        faults.wait_held()
        del target
        gc.collect()
        self.assertIsNotNone(gone())
        faults.let_go()
        store.close()
        gc.collect()
        self.assertIsNone(gone())

    def test_a_wait_lets_other_threads_run_and_all_get_the_result(self) -> None:
        store, faults = self.hanging()
        task = store.load_block(block_id(1), bytearray(BLOCK))
        results: list[object] = []
        threads = [
            threading.Thread(target=lambda: results.append(task.wait_results())) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        faults.wait_held()  # this thread runs while those wait
        faults.let_go()
        for thread in threads:
            thread.join(LIMIT_MS / 1000)
        self.assertEqual(results, [[Status.OK] * 4] * 3)

    def test_cancelled_await_leaves_the_task_running(self) -> None:
        store, faults = self.hanging()
        target = bytearray(BLOCK)

        async def main() -> None:
            waiting = asyncio.ensure_future(_wait(store.load_block(block_id(1), target)))
            await asyncio.get_running_loop().run_in_executor(None, faults.wait_held)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting

        asyncio.run(main())
        gc.collect()
        self.assertFalse(self.resizable(target))
        self.assertEqual(store._core.events._readers, {})
        faults.let_go()
        wait_readable(store)
        store.load([]).wait()
        self.assertTrue(self.resizable(target))
        self.assertEqual(target, content(1))

    def test_await_is_woken_by_the_end(self) -> None:
        store, faults = self.hanging()

        async def main() -> None:
            task = store.load_block(block_id(1), bytearray(BLOCK))
            waiting = [asyncio.ensure_future(_wait(task)) for _ in range(2)]
            await asyncio.get_running_loop().run_in_executor(None, faults.wait_held)
            faults.let_go()
            await asyncio.wait_for(asyncio.gather(*waiting), LIMIT_MS / 1000)

        asyncio.run(main())

    def test_await_is_woken_where_a_thread_takes_the_result(self) -> None:
        store, faults = self.hanging()

        async def main() -> None:
            task = store.load_block(block_id(1), bytearray(BLOCK))
            loop = asyncio.get_running_loop()
            thread = loop.run_in_executor(None, task.wait)
            waiting = asyncio.ensure_future(_wait(task))
            await loop.run_in_executor(None, faults.wait_held)
            faults.let_go()
            both = asyncio.gather(thread, waiting)
            await asyncio.wait_for(both, LIMIT_MS / 1000)

        asyncio.run(main())

    def test_cancel_ends_what_has_not_started(self) -> None:
        store, faults = self.hanging(posix_data_trans_concurrency=1)
        targets = [bytearray(SHARD), bytearray(SHARD)]
        task = store.load([Shard(block_id(1), at, targets[at // 2]) for at in (0, 2)])
        faults.wait_held()
        task.cancel()
        self.assertFalse(self.resizable(targets[1]))  # the task has not ended
        faults.let_go()
        self.assertEqual(task.wait_results(), [Status.OK, Status.CANCELLED])
        with self.assertRaises(kvpath.TaskCancelledError):
            task.wait()

    def test_close_ends_waiting_threads(self) -> None:
        store, faults = self.hanging(close_timeout_ms=50)
        task = store.load_block(block_id(1), bytearray(BLOCK))
        faults.wait_held()
        kinds: list[type[BaseException]] = []

        def wait() -> None:
            try:
                task.wait()
            except kvpath.KvpathError as error:
                kinds.append(type(error))

        waiter = threading.Thread(target=wait)
        waiter.start()
        with self.assertRaises(kvpath.StoreTimeoutError):
            store.close()
        waiter.join(LIMIT_MS / 1000)
        self.assertEqual(kinds, [kvpath.ClosedError])

    def test_close_with_a_limit_gives_isolated_memory_back(self) -> None:
        store, faults = self.hanging(close_timeout_ms=50)
        target = bytearray(BLOCK)
        store.load_block(block_id(1), target)
        faults.wait_held()
        with self.assertRaises(TimeoutError):
            store.close()
        self.assertTrue(store.closed)
        self.assertTrue(self.resizable(target))

    def test_close_with_a_limit_keeps_borrowed_memory_for_ever(self) -> None:
        store, faults = self.hanging(close_timeout_ms=50, buffer_mode="borrowed")
        target = bytearray(BLOCK)
        store.load_block(block_id(1), target)
        faults.wait_held()
        with self.assertRaises(kvpath.StoreTimeoutError):
            store.close()
        gc.collect()
        self.assertFalse(self.resizable(target))

    def test_close_wakes_coroutines(self) -> None:
        store, faults = self.hanging(close_timeout_ms=50)

        async def main() -> None:
            loop = asyncio.get_running_loop()
            waiting = asyncio.ensure_future(_wait(store.load_block(block_id(1), bytearray(BLOCK))))
            await loop.run_in_executor(None, faults.wait_held)
            with self.assertRaises(kvpath.StoreTimeoutError):
                await store.aclose()
            with self.assertRaises(kvpath.ClosedError):
                await asyncio.wait_for(waiting, LIMIT_MS / 1000)
            self.assertEqual(store._core.events._readers, {})

        asyncio.run(main())

    def test_dropped_store_is_closed_in_the_background(self) -> None:
        store, faults = self.hanging(kept=False)
        core, target, closed = store._core, bytearray(BLOCK), threading.Event()
        task = store.load_block(block_id(1), target)
        faults.wait_held()
        kvpath.set_log_callback(lambda _, name, __: closed.set() if name == "KV1008" else None)
        self.addCleanup(kvpath.set_log_callback, None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del store
            gc.collect()
            self.assertEqual(caught, [])  # the task keeps it open
            self.assertFalse(core.closed)
            faults.let_go()
            del task
            gc.collect()
        self.assertEqual([it.category for it in caught], [ResourceWarning])
        self.assertTrue(closed.wait(LIMIT_MS / 1000))
        core.close()  # waits until the other thread is through
        self.assertTrue(self.resizable(target))


def wait_readable(store: kvpath.Store) -> None:
    """Waits until a task has finished that was not listed, without listing it."""
    assert select.select([store.event_fd()], [], [], LIMIT_MS / 1000)[0]


def suppress_closed(faults: Faults) -> None:
    """What still hangs must not keep the test's store from closing."""
    with contextlib.suppress(AssertionError):
        faults.let_go()


async def _wait(task: kvpath.Task) -> None:
    await task


if __name__ == "__main__":
    unittest.main()
